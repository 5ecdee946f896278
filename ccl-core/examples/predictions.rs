//! Prints the predictions of the cost model as the Markdown of docs/performance.md.

use ccl_core::plan::cost::Fabric;
use ccl_core::plan::select::{Pick, pick};
use ccl_core::protocol::LineForm;

fn main() {
    for fabric in Fabric::ALL {
        for n in [2, 4, 8] {
            println!("\n### {} ranks, {}\n", n, fabric.name);
            println!(
                "| bytes | one-shot | mesh | ring | table picks | one-shot, 64 B lines | mesh, 64 B | ring, 64 B |"
            );
            println!("|---|---|---|---|---|---|---|---|");
            for shift in [3, 10, 13, 16, 18, 20, 23, 26, 28] {
                let bytes = 1u64 << shift;
                let time = |form: LineForm| {
                    Pick::ALL.map(|pick| format!("{:.1}", fabric.predict_default_us(pick, n, bytes, form))).join(" | ")
                };
                let chosen = pick(fabric.family, n, bytes);
                println!("| {bytes} | {} | {chosen:?} | {} |", time(LineForm::L8), time(LineForm::L64));
            }
        }
    }
    if std::env::args().any(|argument| argument == "--rows") {
        for fabric in Fabric::ALL {
            for n in [2, 3, 4, 5, 6, 8] {
                let best = |form| (3..=28).map(move |shift| fabric.best(n, 1 << shift, form).0).collect::<Vec<_>>();
                println!("{} {n}: {:?}\n   {:?}", fabric.name, best(LineForm::L8), best(LineForm::L64));
            }
        }
    }
}
