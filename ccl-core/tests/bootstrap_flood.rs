//! Strangers at the rendezvous: ranks join all the same.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ccl_core::bootstrap::{RootOptions, UNIQUE_ID_BYTES, UniqueId, join};
use sha2::{Digest, Sha256};

const HELD: usize = 300;

struct Flood {
    id: UniqueId,
    stop: AtomicBool,
    closed: AtomicU64,
    garbage: AtomicU64,
    slow: AtomicU64,
    wrong: AtomicU64,
}

impl Flood {
    fn connect(&self) -> Option<UnixStream> {
        let address = SocketAddr::from_abstract_name(self.id.socket_name()).unwrap();
        let stream = UnixStream::connect_addr(&address).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        Some(stream)
    }

    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn connect_and_close(&self) {
        while self.running() {
            self.closed.fetch_add(u64::from(self.connect().is_some()), Ordering::Relaxed);
        }
    }

    /// Noise, a hello with a huge length where a length might be, and a megabyte at once.
    fn send_garbage(&self) {
        let mut prefixed = b"CCLXJOIN".to_vec();
        prefixed.extend([0xFF; 60]);
        let samples = [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xFF; 64], prefixed, vec![0xAB; 1 << 20]];
        while self.running() {
            for sample in &samples {
                if let Some(mut stream) = self.connect() {
                    let _ = stream.write_all(sample);
                    self.garbage.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Right so far, but a byte at a time.
    fn send_slowly(&self) {
        let mut streams: Vec<_> = (0..20).filter_map(|_| self.connect()).collect();
        for byte in b"CCLXJOIN\x02\0\0\0".iter().cycle() {
            if !self.running() {
                return;
            }
            for stream in &mut streams {
                match stream.write_all(&[*byte]) {
                    Ok(()) => drop(self.slow.fetch_add(1, Ordering::Relaxed)),
                    Err(_) => *stream = self.connect().unwrap_or_else(|| UnixStream::pair().unwrap().0),
                }
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn guess_secrets(&self) {
        let mut bytes = *self.id.as_bytes();
        let name = bytes.windows(5).position(|window| window == b"cclx-").unwrap();
        while self.running() {
            bytes[name - 2] = bytes[name - 2].wrapping_add(1);
            if bytes[name - 2] == self.id.as_bytes()[name - 2] {
                continue;
            }
            let checksum = Sha256::digest(&bytes[..UNIQUE_ID_BYTES - 32]);
            bytes[UNIQUE_ID_BYTES - 32..].copy_from_slice(&checksum);
            let error = join(&UniqueId::from_bytes(bytes), 0, 8, Duration::from_secs(5)).unwrap_err();
            let refused = error.to_string().contains("wrong secret");
            self.wrong.fetch_add(u64::from(refused), Ordering::Relaxed);
        }
    }
}

#[test]
fn ranks_join_through_a_flood() {
    let id = UniqueId::create(RootOptions::default()).unwrap();
    let count = || AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let flood = Arc::new(Flood { id, stop, closed: count(), garbage: count(), slow: count(), wrong: count() });
    let mut held: Vec<_> = (0..HELD).map(|_| flood.connect().unwrap()).collect();
    let jobs = [Flood::connect_and_close, Flood::send_garbage, Flood::send_slowly, Flood::guess_secrets];
    let strangers: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let flood = Arc::clone(&flood);
            thread::spawn(move || job(&flood))
        })
        .collect();
    thread::sleep(Duration::from_millis(300));
    // Those that are held open without a word give way, all but as many as may be pending.
    let evicted = held.iter_mut().filter_map(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        stream.read(&mut [0]).ok().filter(|got| *got == 0)
    });
    assert!(evicted.count() >= HELD - RootOptions::default().max_pending);

    let began = Instant::now();
    let ranks: Vec<_> = (0..8)
        .map(|rank| {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(60 * rank as u64));
                join(&id, rank, 8, Duration::from_secs(30))
            })
        })
        .collect();
    let meshes: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    let took = began.elapsed();
    flood.stop.store(true, Ordering::Relaxed);
    for stranger in strangers {
        stranger.join().unwrap();
    }

    let meshes: Vec<_> = meshes.into_iter().collect::<Result<_, _>>().unwrap();
    assert!(took < Duration::from_secs(8), "joining took {took:?}");
    thread::scope(|scope| {
        for mesh in &meshes {
            scope.spawn(|| mesh.barrier("all there").unwrap());
        }
    });
    // The flood was one.
    for (count, least) in [(&flood.closed, 200), (&flood.garbage, 40), (&flood.slow, 20), (&flood.wrong, 10)] {
        let count = count.load(Ordering::Relaxed);
        assert!(count >= least, "{count} of at least {least}");
    }
}

#[test]
fn silent_connections_end_at_the_hello_limit_and_never_push_out_a_rank() {
    let limit = Duration::from_millis(300);
    let options = RootOptions { max_pending: 4, hello_limit: limit, ..RootOptions::default() };
    let id = UniqueId::create(options).unwrap();
    let waiting = thread::spawn(move || join(&id, 0, 2, Duration::from_secs(20)));
    thread::sleep(Duration::from_millis(200));
    let address = SocketAddr::from_abstract_name(id.socket_name()).unwrap();
    // Ten times what fits: a rank that has said hello is not among those that give way.
    let mut held: Vec<_> = (0..40).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
    let began = Instant::now();
    let mut last = held.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(last.read(&mut [0]).unwrap(), 0, "closed by the root");
    let took = began.elapsed();
    assert!(took > limit / 2 && took < limit * 5, "the youngest stays for the hello limit, not {took:?}");
    assert!(!waiting.is_finished());
    let other = join(&id, 1, 2, Duration::from_secs(20)).unwrap();
    let mesh = waiting.join().unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| mesh.barrier("both").unwrap());
        other.barrier("both").unwrap();
    });
}
