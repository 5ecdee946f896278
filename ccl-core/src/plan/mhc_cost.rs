//! What a boundary with its all-reduce would take on a described box, by design. **Predictions**, not measurements: nothing
//! of it has run on such a device.
//!
//! A sum of what has to come one after another: launches, hops, memory, the meeting of work-groups. What a box is, is
//! [`Fabric`]'s; what is assumed besides are the two constants below.

use super::fabric::Fabric;
use super::mhc::{Fused, row_sums};
use crate::mhc::Params;
use crate::protocol::LineForm;

/// Microseconds until the work-groups of a device have met: an atomic that all add to, and a look at it.
pub const MEETING_US: f64 = 1.0;
/// Microseconds from a row's sums to its coefficients: forty divisions that wait for one another.
pub const COEFFICIENTS_US: f64 = 1.0;

impl Fabric {
    /// Predicted microseconds of a boundary and its all-reduce among `n` ranks: unfused, or by a design.
    pub fn predict_mhc_us(&self, params: &Params, design: Option<Fused>, n: usize, form: LineForm) -> f64 {
        let (rows, d, hc, ranks) = (params.rows as f64, params.hidden as f64, f64::from(params.streams), n as f64);
        let element = params.dtype.size() as f64;
        let (x, residual) = (rows * d * element, 2.0 * rows * hc * d * element);
        let weights = params.mixes() as f64 * hc * d * 4.0;
        let us = |bytes: f64| bytes / self.local_gbps * 1e-3;
        let reduction = self.best(n, x as u64, form).1;
        let boundary = us(x + residual + weights) + MEETING_US + COEFFICIENTS_US + us(residual / 2.0 + x);
        match design {
            None => reduction + self.launch_us + boundary,
            Some(Fused::Whole) => reduction + boundary,
            // Until y is there; the sums come after it.
            Some(Fused::Delayed) => reduction + us(x + residual) + us(x),
            Some(Fused::Owner) => {
                let efficiency = form.payload_words() as f64 * 4.0 / form.granule() as f64;
                let sums = rows * row_sums(params) as f64 * 4.0;
                let link = |bytes: f64| bytes / efficiency / self.port_gbps * 1e-3;
                let share = (ranks - 1.0) / ranks;
                let own = us((x + residual + weights) / ranks);
                // The others' columns come while the own sums are made and sent.
                let others = us((x + residual) * share);
                self.launch_us
                    + 2.0 * self.hop_us
                    + link(2.0 * x * share + (ranks - 1.0) * sums)
                    + own
                    + MEETING_US
                    + (others - self.hop_us).max(0.0)
                    + COEFFICIENTS_US
                    + us(residual / 2.0 + x)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;
    use crate::mhc::Variant;

    #[test]
    fn predictions_behave() {
        for fabric in Fabric::ALL {
            for n in [2, 4, 8] {
                for rows in [1, 8, 64] {
                    let params = Params::new(Variant::V41, DataType::Bfloat16, rows, 4096, 4);
                    let us = |design| fabric.predict_mhc_us(&params, design, n, LineForm::L64);
                    let (unfused, a, b, c) =
                        (us(None), us(Some(Fused::Whole)), us(Some(Fused::Delayed)), us(Some(Fused::Owner)));
                    assert!(b < a && a < unfused && c < unfused, "{} {n} {rows}", fabric.name);
                    assert!((unfused - a - fabric.launch_us).abs() < 1e-9);
                    // Nothing is faster than launch, two hops and its share of fn.
                    let weights = 24.0 * 4.0 * 4096.0 * 4.0 / n as f64 / fabric.local_gbps * 1e-3;
                    assert!(c > fabric.launch_us + 2.0 * fabric.hop_us + weights);
                }
            }
        }
    }
}
