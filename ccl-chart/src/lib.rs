//! Curves over message sizes on logarithmic axes, as SVG: the pictures of `ccl perf --plot` and of the comparison with
//! peers.

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;
use std::ops::Range;

/// A named line through points of (bytes, value); both above zero.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// Its points, by ascending size.
    pub points: Vec<(f64, f64)>,
    /// Drawn thinner, as something to compare with.
    pub faint: bool,
}

/// One chart of a picture.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// What its vertical axis shows.
    pub unit: String,
    /// Its lines.
    pub curves: Vec<Curve>,
}

/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (900, 520);

/// A picture of the panels, one below the other. Points that a logarithmic axis can't show are left out.
pub fn svg(panels: &[Panel]) -> Result<String, String> {
    let height = PANEL.1 * panels.len().max(1) as u32;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (PANEL.0, height)).into_drawing_area();
        let paint = || -> Result<(), DrawingAreaErrorKind<_>> {
            root.fill(&WHITE)?;
            for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
                draw(area, panel)?;
            }
            root.present()
        };
        paint().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>, panel: &Panel) -> Drawn<'a> {
    let shown = |point: &&(f64, f64)| point.0 > 0.0 && point.1 > 0.0 && point.1.is_finite();
    let points = || panel.curves.iter().flat_map(|curve| &curve.points).filter(shown);
    let (x, y) = (span(points().map(|point| point.0)), span(points().map(|point| point.1)));
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(74)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("message size")
        .y_desc(&panel.unit)
        .x_label_formatter(&|bytes| size(*bytes))
        .y_label_formatter(&|value| number(*value))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (index, curve) in panel.curves.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let style = colour.stroke_width(if curve.faint { 1 } else { 3 });
        let drawn: Vec<(f64, f64)> = curve.points.iter().filter(shown).copied().collect();
        chart
            .draw_series(LineSeries::new(drawn.iter().copied(), style))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        let radius = if curve.faint { 2 } else { 4 };
        chart.draw_series(drawn.iter().map(|point| Circle::new(*point, radius, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}

/// From just below the least to just above the largest; something drawable if there is none.
fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if high <= 0.0 { 1.0..10.0 } else { low / 1.3..high * 1.3 }
}

fn size(bytes: f64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit as f64) {
        Some((unit, name)) => format!("{} {name}", number(bytes / unit as f64)),
        None => format!("{} B", number(bytes)),
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 10.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn every_curve_and_title_is_in_the_picture() {
        let curve =
            |name: &str, faint| Curve { name: name.into(), points: vec![(8.0, 0.3), (1e6, 80.0), (0.0, 1.0)], faint };
        let panels = [
            Panel {
                title: "latency".into(),
                unit: "us".into(),
                curves: vec![curve("ours", false), curve("other", true)],
            },
            Panel { title: "nothing".into(), unit: "GB/s".into(), curves: vec![Curve::default()] },
        ];
        let text = svg(&panels).unwrap();
        for word in ["latency", "nothing", "ours", "other", "message size", "GB/s", "KiB"] {
            assert!(text.contains(word), "no {word} in the picture");
        }
        // Two points of each of two curves; the third has no place on a logarithmic axis.
        assert_eq!(text.matches("<circle").count(), 4);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([8.0, 1024.0, 1.5 * 1024.0 * 1024.0].map(size), ["8.0 B", "1.0 KiB", "1.5 MiB"]);
        assert_eq!([0.25, 3.0, 4000.0].map(number), ["0.25", "3.0", "4000"]);
    }
}
