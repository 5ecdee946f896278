//! What the watch makes of goodbyes, hang-ups, stuck collectives and device faults; ranks are threads.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::local;
use ccl_core::collective::{Collective, CollectiveCall};
use ccl_core::protocol::{Fault, Shape};
use ccl_core::types::Kind;
use ccl_core::watch::{Alarm, DeviceFault, Progress, Watch, WatchOptions};
use ccl_core::{DataType, Error, Order, ReduceOp};
use parking_lot::Mutex;

const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Fake {
    progress: Mutex<Progress>,
    aborts: AtomicUsize,
    /// How long it takes to set the abort word.
    slow: Mutex<Duration>,
    calls: AtomicUsize,
}

impl Fake {
    fn at(&self, entered: u64, done: u64) {
        let mut progress = self.progress.lock();
        (progress.entered, progress.done) = (entered, done);
    }

    /// Call #7 is another than the other ranks'.
    fn makes_another_call(&self) {
        let kind = Kind::new(DataType::Float32, ReduceOp::Sum, Order::Ring).word();
        self.progress.lock().shape = Some((7, Shape::new(100, 100, 0, kind, 1)));
    }

    fn aborts(&self) -> usize {
        self.aborts.load(Ordering::SeqCst)
    }
}

impl Alarm for Fake {
    fn abort(&self) {
        thread::sleep(*self.slow.lock());
        self.aborts.fetch_add(1, Ordering::SeqCst);
    }

    fn progress(&self) -> Progress {
        *self.progress.lock()
    }
}

struct Rank {
    watch: Watch,
    fake: Arc<Fake>,
}

fn group(world: usize, timeout: Duration) -> Vec<Rank> {
    let meshes = local(world).unwrap();
    meshes
        .into_iter()
        .map(|mesh| {
            let fake = Arc::new(Fake::default());
            let kind = Kind::new(DataType::Bfloat16, ReduceOp::Sum, Order::Ring).word();
            fake.progress.lock().shape = Some((7, Shape::new(1024, 1024, 0, kind, 1)));
            let counted = Arc::clone(&fake);
            let on_fault = Box::new(move |_: &Error| {
                counted.calls.fetch_add(1, Ordering::SeqCst);
            });
            let label = format!("comm 3f21 rank {}/{world}", mesh.rank());
            let watch = Watch::start(mesh, fake.clone(), WatchOptions { timeout, label, on_fault }).unwrap();
            Rank { watch, fake }
        })
        .collect()
}

impl Rank {
    /// The failure, waited for.
    fn failure(&self, within: Duration) -> Error {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(error) = self.watch.fault() {
                assert_eq!(self.watch.fault(), Some(error.clone()), "sticky");
                // The failure is kept before the abort word is set.
                while self.fake.aborts() == 0 && Instant::now() < until {
                    thread::yield_now();
                }
                assert_eq!(self.fake.aborts(), 1);
                return error;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no failure within {within:?}");
    }

    fn is_well(&self) -> bool {
        self.watch.fault().is_none() && self.fake.aborts() == 0 && self.fake.calls.load(Ordering::SeqCst) == 0
    }
}

#[test]
fn a_goodbye_is_no_fault_and_its_absence_is() {
    let mut ranks = group(3, LONG);
    ranks.remove(1).watch.close();
    thread::sleep(Duration::from_millis(150));
    assert!(ranks.iter().all(Rank::is_well));

    // The same without the goodbye.
    ranks.remove(0).watch.close_without_goodbye();
    let error = ranks[0].failure(Duration::from_secs(2));
    assert!(matches!(&error, Error::PeerLost { rank: 0, detail, during }
        if detail.contains(&format!("process {} ended without a goodbye", std::process::id())) && during.is_empty()));
}

#[test]
fn a_loss_in_mid_collective_names_it() {
    let mut ranks = group(3, LONG);
    ranks.iter().for_each(|rank| rank.fake.at(7, 6));
    ranks.remove(2).watch.close_without_goodbye();
    for rank in &ranks {
        let error = rank.failure(Duration::from_secs(2)).to_string();
        assert!(error.contains("rank 2 is gone"), "{error}");
        assert!(error.ends_with("during all_reduce #7 (1024 bfloat16 sum)"), "{error}");
    }
}

#[test]
fn the_first_failure_stays_and_is_told_once() {
    let ranks = group(2, LONG);
    ranks[0].watch.fail(Error::Aborted("by the user".into()));
    ranks[0].watch.fail(Error::Internal("later".into()));
    assert_eq!(ranks[0].failure(LONG), Error::Aborted("by the user".into()));
    assert_eq!(ranks[1].failure(Duration::from_secs(2)), Error::Aborted("by the user, as rank 0 tells".into()));
    thread::sleep(Duration::from_millis(50));
    ranks[1].watch.fail(Error::Internal("later".into()));
    for rank in &ranks {
        assert!(matches!(rank.watch.fault(), Some(Error::Aborted(_))));
        assert_eq!(rank.fake.calls.load(Ordering::SeqCst), 1);
        assert_eq!(rank.fake.aborts(), 1);
    }
}

#[test]
fn hearsay_names_the_original_even_when_its_teller_vanishes() {
    for _ in 0..20 {
        let mut ranks = group(4, LONG);
        let teller = ranks.remove(0);
        let lost = Error::PeerLost { rank: 2, detail: "process 77 ended".into(), during: String::new() };
        teller.watch.fail(lost);
        teller.watch.close_without_goodbye();
        for rank in &ranks {
            let error = rank.failure(Duration::from_secs(2));
            assert!(matches!(&error, Error::PeerLost { rank: 2, detail, .. }
                if detail.starts_with("process 77 ended, as rank ")));
        }
    }
}

/// What is told on of a long text.
const TOLD_BYTES: usize = 600;

/// Also where a rank that was told itself is heard first.
#[test]
fn an_abort_that_is_told_on_is_still_its_ranks() {
    // Of a long text the end is left out, not whose it is.
    for text in ["by the user".to_owned(), "by the user ".repeat(200)] {
        let told = &text[..text.len().min(TOLD_BYTES)];
        for _ in 0..20 {
            let ranks = group(4, LONG);
            ranks[1].watch.fail(Error::Aborted(text.clone()));
            for rank in [&ranks[0], &ranks[2], &ranks[3]] {
                let error = rank.failure(Duration::from_secs(2)).to_string();
                assert!(error.starts_with(&format!("aborted: {told}, as rank 1 tells")), "{error}");
            }
        }
    }
}

#[test]
fn own_observation_beats_hearsay() {
    let mut hearsay = 0;
    for _ in 0..20 {
        let mut ranks = group(3, LONG);
        ranks.remove(2).watch.close_without_goodbye();
        // Rank 0 tells of it while rank 1 has the hang-up before it, too.
        for rank in &ranks {
            let error = rank.failure(Duration::from_secs(2));
            assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
            assert!(error.to_string().contains("ended without a goodbye"), "{error}");
            hearsay += usize::from(error.to_string().contains("tells"));
        }
    }
    // A loaded machine may part the two hang-ups by more than anybody waits, but not as a rule.
    assert!(hearsay <= 10, "{hearsay} of 40");
}

#[test]
fn a_timeout_names_the_rank_that_has_not_entered() {
    let timeout = Duration::from_millis(500);
    let ranks = group(3, timeout);
    let began = Instant::now();
    ranks[0].fake.at(7, 6);
    ranks[1].fake.at(7, 6);
    ranks[2].fake.at(6, 6);
    for rank in &ranks {
        let error = rank.failure(Duration::from_secs(3));
        assert!(matches!(error, Error::Timeout { after, .. } if after == timeout), "{error}");
        let text = error.to_string();
        assert!(text.contains("all_reduce #7 (1024 bfloat16 sum) did not finish: rank 2 has not entered"), "{text}");
        assert!(text.contains("(it finished #6)"), "{text}");
        assert!(text.contains("comm 3f21 rank"), "{text}");
    }
    assert!(began.elapsed() >= timeout && began.elapsed() < timeout + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_rank_that_left_too_early_is_named() {
    let mut ranks = group(3, Duration::from_millis(400));
    ranks.remove(1).watch.close();
    ranks.iter().for_each(|rank| rank.fake.at(7, 6));
    for rank in &ranks {
        let error = rank.failure(Duration::from_secs(3)).to_string();
        assert!(error.contains("rank 1 has left (it said goodbye)"), "{error}");
    }
}

#[test]
fn progress_is_no_timeout() {
    let ranks = group(2, Duration::from_millis(400));
    for number in 1..=15 {
        ranks.iter().for_each(|rank| rank.fake.at(number, number - 1));
        thread::sleep(Duration::from_millis(100));
    }
    // A finished one may last.
    ranks.iter().for_each(|rank| rank.fake.at(15, 15));
    thread::sleep(Duration::from_millis(800));
    assert!(ranks.iter().all(Rank::is_well));
}

#[test]
fn a_timeout_without_end_is_none() {
    let ranks = group(2, Duration::MAX);
    ranks.iter().for_each(|rank| rank.fake.at(1, 0));
    thread::sleep(Duration::from_millis(500));
    assert!(ranks.iter().all(Rank::is_well));
}

fn fault(fault: Fault) -> DeviceFault {
    DeviceFault { fault, wire: 3, step: 2, round: 1, expected: 9, seen: 8, call: 7 }
}

#[test]
fn device_faults_are_told_with_their_place() {
    let place = "(wire 3, step 2, round 1: waited for tag 9, saw 8)";
    let ranks = group(2, LONG);
    ranks[0].fake.progress.lock().fault = Some(fault(Fault::Overlap));
    for rank in &ranks {
        let error = rank.failure(Duration::from_secs(2));
        assert!(matches!(error, Error::InvalidUsage(_)), "{error}");
        assert!(error.to_string().contains("all_reduce #7") && error.to_string().contains(place), "{error}");
    }

    let ranks = group(2, LONG);
    ranks[1].fake.at(6, 6);
    ranks[0].fake.at(7, 6);
    ranks[0].fake.progress.lock().fault = Some(fault(Fault::SpinLimit));
    for rank in &ranks {
        let error = rank.failure(Duration::from_secs(2));
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("by its own limit") && text.contains(place), "{text}");
        assert!(text.contains("rank 1 has not entered all_reduce #7"), "{text}");
    }

    // An abort word that somebody else set.
    let ranks = group(1, LONG);
    ranks[0].fake.progress.lock().fault = Some(fault(Fault::Aborted));
    let error = ranks[0].failure(Duration::from_secs(2));
    assert!(matches!(error, Error::Aborted(_)), "{error}");
}

#[test]
fn a_lone_rank_times_out_as_well() {
    let ranks = group(1, Duration::from_millis(200));
    ranks[0].fake.at(7, 6);
    let error = ranks[0].failure(Duration::from_secs(2)).to_string();
    assert!(error.contains("all_reduce #7"), "{error}");
}

/// The rank that finds out need not be the odd one, nor next to it.
#[test]
fn the_rank_that_made_another_call_is_named_by_all() {
    let ranks = group(4, LONG);
    ranks[2].fake.makes_another_call();
    ranks[3].fake.progress.lock().fault = Some(fault(Fault::Mismatch));
    for rank in &ranks {
        let error = rank.failure(Duration::from_secs(2));
        assert!(matches!(error, Error::InvalidUsage(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("call #7: rank 2 made it with 100 float32 sum"), "{text}");
        assert!(text.contains("ranks 0, 1, 3 made it with 1024 bfloat16 sum"), "{text}");
    }
}

/// Three ranks replay a graph whose call #7 rank 1 made otherwise, which its device reports. Rank 2 comes to it `late`, if
/// ever, and is first in a call with some other rank.
fn disagree(late: Option<Duration>, timeout: Duration) -> Vec<String> {
    let ranks = group(3, timeout);
    let send = CollectiveCall::moving(Collective::Send { to: 0 }, 10, DataType::Int32).kind();
    let usual = ranks[2].fake.progress.lock().shape.replace((7, Shape::new(10, 0, 0, send, 1)));
    ranks[2].fake.at(6, 6);
    ranks[0].fake.at(7, 6);
    ranks[1].fake.at(7, 6);
    ranks[1].fake.makes_another_call();
    ranks[1].fake.progress.lock().fault = Some(fault(Fault::Mismatch));
    if let Some(late) = late {
        thread::sleep(late);
        ranks[2].fake.at(7, 6);
        ranks[2].fake.progress.lock().shape = usual;
    }
    ranks.iter().map(|rank| rank.failure(Duration::from_secs(10)).to_string()).collect()
}

/// Two ranks that disagree can't tell which of them is the odd one: they wait for the third.
#[test]
fn a_rank_that_is_late_decides_who_is_the_odd_one() {
    for text in disagree(Some(Duration::from_millis(300)), LONG) {
        assert!(text.contains("call #7: rank 1 made it with 100 float32 sum; ranks 0, 2 made it with 1024"), "{text}");
    }
}

/// The wait ends, and with it what is known.
#[test]
fn a_rank_that_is_too_late_is_said_to_be_missing() {
    let since = Instant::now();
    for text in disagree(None, LONG) {
        assert!(text.contains("call #7: rank 0 made it with 1024 bfloat16 sum; rank 1 made it with 100"), "{text}");
        assert!(text.contains("; rank 2 has not entered it (it finished #6)"), "{text}");
    }
    assert!(since.elapsed() >= Duration::from_millis(900), "{:?}", since.elapsed());
}

/// NEGATIVE CONTROL: the half of a short timeout is no time to wait. Nor does it let a rank that waits time out first.
#[test]
fn without_the_wait_a_late_rank_does_not_count() {
    for text in disagree(Some(Duration::from_millis(1550)), Duration::from_millis(1900)) {
        assert!(text.contains("call #7: rank 0 made it with 1024 bfloat16 sum; rank 1 made it with 100"), "{text}");
        assert!(text.contains("; rank 2 has not entered it (it finished #6)"), "{text}");
    }
}

/// What rank 0 of two hears of rank 1, whose device has just reported that they disagree, and which `ends`.
fn ends_with_a_fault(timeout: Duration, ends: impl Fn(Rank)) -> Error {
    let mut ranks = group(2, timeout);
    let odd = ranks.pop().unwrap();
    ranks[0].fake.at(7, 6);
    odd.fake.makes_another_call();
    *odd.fake.slow.lock() = Duration::from_millis(100);
    odd.fake.progress.lock().fault = Some(fault(Fault::Mismatch));
    ends(odd);
    ranks[0].failure(Duration::from_secs(10))
}

/// A rank that ends, or whose process does, tells what its device has reported before it says goodbye.
#[test]
fn a_fault_is_told_before_the_goodbye() {
    let leave = |rank: Rank| {
        rank.watch.leave();
        // The process may end now.
        assert_eq!(rank.fake.aborts(), 1, "the others are told after that");
    };
    for error in [ends_with_a_fault(LONG, |rank| rank.watch.close()), ends_with_a_fault(LONG, leave)] {
        assert!(matches!(&error, Error::InvalidUsage(text) if text.contains("ranks disagree on call #7")), "{error}");
    }
}

/// NEGATIVE CONTROL: else the others time out, of a rank that has left.
#[test]
fn a_fault_is_not_told_behind_the_goodbye() {
    let error = ends_with_a_fault(Duration::from_secs(1), |rank| rank.watch.close_without_telling());
    assert!(matches!(&error, Error::Timeout { what, .. } if what.contains("rank 1 has left")), "{error}");
}

#[test]
fn the_callback_may_drop_the_watch() {
    let mut meshes = local(2).unwrap();
    let start = |mesh, on_fault| {
        let options = WatchOptions { timeout: LONG, label: "comm".into(), on_fault };
        Watch::start(mesh, Arc::new(Fake::default()), options).unwrap()
    };
    let other = start(meshes.pop().unwrap(), Box::new(|_: &Error| {}));
    let held: Arc<Mutex<Option<Watch>>> = Arc::default();
    let (tell, told) = mpsc::channel();
    let dropper = Arc::clone(&held);
    let on_fault = Box::new(move |_: &Error| {
        drop(dropper.lock().take());
        tell.send(()).unwrap();
    });
    *held.lock() = Some(start(meshes.pop().unwrap(), on_fault));
    other.close_without_goodbye();
    told.recv_timeout(Duration::from_secs(2)).unwrap();
    assert!(held.lock().is_none());
}
