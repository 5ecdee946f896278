//! Prints the predictions of docs/performance.md as Markdown: of the closed form, and of the plans executed in virtual time.
//! With `--mhc`: those of mHC boundaries. With `--rows`: which algorithm is simulated to be the fastest, for the selection tables.

use ccl_core::DataType;
use ccl_core::device::DeviceFamily;
use ccl_core::mhc::{Params, Variant};
use ccl_core::plan::fabric::{Fabric, simulate};
use ccl_core::plan::mhc::Fused;
use ccl_core::plan::select::{Pick, pick};
use ccl_core::protocol::LineForm;

/// Others' figures for 2 x Arc Pro B70, bf16: bytes and microseconds.
const PUBLISHED: [(u64, f64); 5] =
    [(16 << 10, 10.3), (64 << 10, 10.0), (128 << 10, 11.8), (1 << 20, 56.3), (8 << 20, 318.0)];

/// Microseconds by simulation. None of one-shots that send more than 8 MiB a rank: they are far behind, and slow to
/// simulate.
fn simulated(fabric: &Fabric, by: Option<Pick>, n: usize, bytes: u64, form: LineForm) -> Option<f64> {
    if by == Some(Pick::OneShot) && (n as u64 - 1) * bytes > 8 << 20 {
        return None;
    }
    let plan = fabric.plan(by, n, bytes, form).ok()?;
    simulate(&plan, fabric).map_err(|stuck| eprintln!("{plan}: {stuck}")).ok().map(|report| report.us())
}

fn text(us: Option<f64>) -> String {
    us.map_or("-".into(), |us| format!("{us:.1}"))
}

fn published() {
    println!("| bytes | lines | table picks | closed form | simulation | published | simulation / published |");
    println!("|---|---|---|---|---|---|---|");
    let fabric = Fabric::B70_PCIE;
    for form in [LineForm::L8, LineForm::L64] {
        for (bytes, figure) in PUBLISHED {
            let chosen = pick(fabric.family, 2, bytes);
            let closed = fabric.predict_default_us(chosen, 2, bytes, form);
            let time = simulated(&fabric, None, 2, bytes, form);
            let ratio = time.map_or("-".into(), |us| format!("{:.2}", us / figure));
            let time = text(time);
            println!("| {bytes} | {} B | {chosen:?} | {closed:.1} | {time} | {figure} | {ratio} |", form.granule());
        }
    }
}

fn boxes() {
    for fabric in Fabric::BOXES {
        for n in [2, 4, 8] {
            println!("\n### {} ranks, {}\n", n, fabric.name);
            println!(
                "| bytes | one-shot | mesh | ring | table picks | one-shot, 64 B lines | mesh, 64 B | ring, 64 B |"
            );
            println!("|---|---|---|---|---|---|---|---|");
            for shift in [3, 10, 13, 16, 18, 20, 23] {
                let bytes = 1u64 << shift;
                let times = |form| {
                    let cell = |by| {
                        let closed = fabric.predict_default_us(by, n, bytes, form);
                        format!("{} ({closed:.1})", text(simulated(&fabric, Some(by), n, bytes, form)))
                    };
                    Pick::ALL.map(cell).join(" | ")
                };
                let chosen = pick(fabric.family, n, bytes);
                println!("| {bytes} | {} | {chosen:?} | {} |", times(LineForm::L8), times(LineForm::L64));
            }
        }
    }
}

/// For each size what is within a quarter of the best, with percent beyond it.
fn rows() {
    for (fabric, n) in Fabric::BOXES.into_iter().flat_map(|fabric| (2..=8).map(move |n| (fabric, n))) {
        for form in [LineForm::L8, LineForm::L64] {
            print!("{} n={n} {form:?}:", fabric.name);
            for shift in (9..=20).chain([22]) {
                let time = |by| simulated(&fabric, Some(by), n, 1 << shift, form).map(|us| (us, by));
                let mut times: Vec<_> = Pick::ALL.into_iter().filter_map(time).collect();
                times.sort_by(|a, b| a.0.total_cmp(&b.0));
                print!(" 2^{shift}");
                for (us, by) in times.iter().take_while(|(us, _)| *us <= 1.25 * times[0].0) {
                    print!(" {by:?}+{:.0}", (us / times[0].0 - 1.0) * 100.0);
                }
                print!(";");
            }
            println!();
        }
    }
}

/// A boundary with its all-reduce, one row of DeepSeek-V4-Flash's, eight and 64, and a token of them, by design.
fn boundaries() {
    println!(
        "| box | ranks | rows | unfused | a | b: until y | c | c / unfused | a token, unfused: ms | a token, c: ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for fabric in Fabric::ALL {
        for (n, rows) in [2, 4, 8].into_iter().flat_map(|n| [1, 8, 64].map(|rows| (n, rows))) {
            let form = if fabric.family == DeviceFamily::IntelPcie { LineForm::L8 } else { LineForm::L16 };
            let params = Params::new(Variant::V4, DataType::Bfloat16, rows, 4096, 4);
            let us = |design| fabric.predict_mhc_us(&params, design, n, form);
            let (unfused, c) = (us(None), us(Some(Fused::Owner)));
            // Two more all-reduces, one before the first boundary and one before the last post.
            let token = |boundary: f64| (85.0 * boundary + 2.0 * fabric.best(n, rows * 8192, form).1) * 1e-3;
            println!(
                "| {} | {n} | {rows} | {unfused:.1} | {:.1} | {:.1} | {c:.1} | {:.2} | {:.2} | {:.2} |",
                fabric.name,
                us(Some(Fused::Whole)),
                us(Some(Fused::Delayed)),
                c / unfused,
                token(unfused),
                token(c)
            );
        }
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "--mhc") {
        return boundaries();
    }
    if std::env::args().any(|argument| argument == "--rows") {
        return rows();
    }
    published();
    boxes();
}
