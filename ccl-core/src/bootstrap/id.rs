//! The unique id: what a rank must know to find the others.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use sha2::{Digest, Sha256};

use super::{RootOptions, root};
use crate::mesh::sys;
use crate::{Error, Result};

/// Bytes of a [`UniqueId`].
pub const UNIQUE_ID_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"CCLX-UID";
const VERSION: u32 = 1;
/// Bytes of the secret.
pub(super) const SECRET_BYTES: usize = 16;

// Where each field lies. The rest is zero; the checksum covers everything before it.
const AT_VERSION: usize = 8;
const AT_PID: usize = 12;
const AT_BOOT: usize = 16;
const BOOT_BYTES: usize = 48;
const AT_NAMESPACE: usize = AT_BOOT + BOOT_BYTES;
const AT_SECRET: usize = AT_NAMESPACE + 8;
const AT_NAME: usize = AT_SECRET + SECRET_BYTES;
const NAME_BYTES: usize = 48;
const CHECKSUM_BYTES: usize = 32;
const AT_CHECKSUM: usize = UNIQUE_ID_BYTES - CHECKSUM_BYTES;

/// Identifies one group of ranks and the place where they meet. Plain bytes: send it to the other ranks by any means
/// that you trust, since whoever has it (and runs as the same user on the same host) can join.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId {
    bytes: [u8; UNIQUE_ID_BYTES],
}

/// What a rank needs of a valid id.
#[derive(Clone, Copy)]
pub(super) struct Meeting<'a> {
    pub(super) name: &'a [u8],
    pub(super) secret: &'a [u8],
    pub(super) creator: u32,
}

impl UniqueId {
    /// Makes an id and starts its rendezvous, which a detached thread of this process serves until the group has
    /// formed or the limits in `options` have passed. The process need not be a rank, but must live until then.
    pub fn create(options: RootOptions) -> Result<Self> {
        let mut random = [0; 2 * SECRET_BYTES];
        fill_random(&mut random)?;
        let id = Self::made_of(&random, std::process::id())?;
        id.serve(options)?;
        Ok(id)
    }

    /// The id that goes with another secret that all ranks share, such as the unique id of another library: whoever has
    /// that makes the same id of it on this host. One of them has to [`Self::serve`] it.
    pub fn derived(from: &[u8]) -> Result<Self> {
        Self::made_of(&Sha256::digest(from).into(), 0)
    }

    /// Starts the rendezvous of an id that was [`Self::derived`], as [`Self::create`] does.
    pub fn serve(&self, options: RootOptions) -> Result<()> {
        let Meeting { name, secret, .. } = self.meeting()?;
        root::start(name, secret, options)
    }

    fn made_of(random: &[u8; 2 * SECRET_BYTES], creator: u32) -> Result<Self> {
        let (secret, tail) = random.split_at(SECRET_BYTES);
        let name = format!("cclx-{}", hex(tail));
        let host = Host::here()?;
        let mut id = Self { bytes: [0; UNIQUE_ID_BYTES] };
        id.put(0, MAGIC);
        id.put(AT_VERSION, &VERSION.to_le_bytes());
        id.put(AT_PID, &creator.to_le_bytes());
        id.put(AT_BOOT, &host.boot);
        id.put(AT_NAMESPACE, &host.namespace.to_le_bytes());
        id.put(AT_SECRET, secret);
        id.put(AT_NAME, name.as_bytes());
        let checksum = id.checksum();
        id.put(AT_CHECKSUM, &checksum);
        Ok(id)
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8; UNIQUE_ID_BYTES] {
        &self.bytes
    }

    /// An id from the bytes that were sent. Whether they are a valid id is checked by [`super::join`].
    pub fn from_bytes(bytes: [u8; UNIQUE_ID_BYTES]) -> Self {
        Self { bytes }
    }

    /// Name of the rendezvous in the abstract socket namespace, without the leading zero byte.
    pub fn socket_name(&self) -> &[u8] {
        let name = &self.bytes[AT_NAME..AT_NAME + NAME_BYTES];
        name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether this is an id of this version, undamaged and made on this host.
    pub fn check(&self) -> Result<()> {
        self.meeting().map(drop)
    }

    pub(super) fn meeting(&self) -> Result<Meeting<'_>> {
        let invalid = |text: &str| Err(Error::InvalidArgument(text.to_owned()));
        if !self.bytes.starts_with(MAGIC) {
            return invalid("not a unique id of this library");
        }
        let version = self.word(AT_VERSION);
        if version != VERSION {
            return invalid(&format!("the unique id has version {version}, this library needs version {VERSION}"));
        }
        if self.checksum() != self.bytes[AT_CHECKSUM..] {
            return invalid("the unique id is damaged (its checksum is wrong)");
        }
        let host = Host::here()?;
        if self.bytes[AT_BOOT..AT_NAMESPACE] != host.boot {
            return invalid(
                "this unique id was made on another host (or before a reboot); ranks on several hosts are not supported",
            );
        }
        if self.bytes[AT_NAMESPACE..AT_SECRET] != host.namespace.to_le_bytes() {
            return invalid(
                "this unique id was made in another network namespace of this host; ranks in several containers must \
                 share one network namespace",
            );
        }
        let secret = &self.bytes[AT_SECRET..AT_NAME];
        Ok(Meeting { name: self.socket_name(), secret, creator: self.word(AT_PID) })
    }

    fn word(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(word)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        Sha256::digest(&self.bytes[..AT_CHECKSUM]).into()
    }
}

/// Without the secret.
impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({}, process {})", String::from_utf8_lossy(self.socket_name()), self.word(AT_PID))
    }
}

/// Where abstract sockets of the same name are the same socket.
struct Host {
    boot: [u8; BOOT_BYTES],
    namespace: u64,
}

impl Host {
    fn here() -> Result<Self> {
        let path = "/proc/sys/kernel/random/boot_id";
        let text = std::fs::read(path).map_err(|error| sys::unread(path, error))?;
        let text = text.trim_ascii();
        let mut boot = [0; BOOT_BYTES];
        let length = text.len().min(BOOT_BYTES);
        boot[..length].copy_from_slice(&text[..length]);
        // The thread's, not the process's: the two may differ, and the socket is made by the thread.
        let path = "/proc/thread-self/ns/net";
        let namespace = std::fs::metadata(path).map_err(|error| sys::unread(path, error))?.ino();
        Ok(Self { boot, namespace })
    }
}

fn fill_random(bytes: &mut [u8]) -> Result<()> {
    // SAFETY: the pointer and the length are those of one exclusive slice.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match Errno::result(got) {
        // Requests of up to 256 bytes are never cut short.
        Ok(got) if got as usize == bytes.len() => Ok(()),
        Ok(got) => Err(Error::system("getrandom", format!("{got} bytes of {}", bytes.len()))),
        Err(errno) => Err(Error::system("getrandom", errno)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const _: () = assert!(size_of::<UniqueId>() == UNIQUE_ID_BYTES && align_of::<UniqueId>() == 1);
const _: () = assert!(AT_NAME + NAME_BYTES <= AT_CHECKSUM);

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(id: &UniqueId) -> String {
        id.check().expect_err("this id must be refused").to_string()
    }

    fn resealed(mut id: UniqueId) -> UniqueId {
        let checksum = id.checksum();
        id.put(AT_CHECKSUM, &checksum);
        id
    }

    #[test]
    fn each_fault_of_an_id_is_named() {
        let id =
            UniqueId::create(RootOptions { idle_limit: std::time::Duration::from_millis(10), ..Default::default() })
                .expect("a rendezvous");
        id.check().expect("a fresh id is valid");
        assert!(refusal(&UniqueId::from_bytes([0; _])).contains("not a unique id"));

        let mut other = id;
        other.put(AT_VERSION, &9u32.to_le_bytes());
        assert!(refusal(&other).contains("version 9"));
        other = id;
        other.bytes[2000] ^= 1;
        assert!(refusal(&other).contains("damaged"));
        other = id;
        other.bytes[AT_SECRET] ^= 1;
        assert!(refusal(&other).contains("damaged"));
        other = id;
        other.bytes[AT_BOOT] ^= 1;
        assert!(refusal(&other).contains("damaged"));
        assert!(refusal(&resealed(other)).contains("made on another host"));
        other = id;
        other.bytes[AT_NAMESPACE] ^= 1;
        assert!(refusal(&resealed(other)).contains("another network namespace"));
    }

    #[test]
    fn ids_differ_and_hide_their_secret() {
        let options = RootOptions { idle_limit: std::time::Duration::from_millis(10), ..Default::default() };
        let one = UniqueId::create(options.clone()).expect("a rendezvous");
        let other = UniqueId::create(options).expect("a rendezvous");
        assert_ne!(one.bytes[AT_SECRET..AT_NAME], other.bytes[AT_SECRET..AT_NAME]);
        assert_ne!(one.socket_name(), other.socket_name());
        assert!(!format!("{one:?}").contains(&hex(&one.bytes[AT_SECRET..AT_NAME])));
    }
}
