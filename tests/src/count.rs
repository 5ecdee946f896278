//! Counting what the product says of itself, by other means: Level Zero calls by stubs in front of the driver's
//! functions, allocations by an allocator, and what a process holds by asking the kernel.

use level_zero_sys::{ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, ZE_RESULT_SUCCESS, ze_driver_handle_t, ze_result_t};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Functions that have a stub, and how often each was called. The counters live as long as the process.
static STUBS: Mutex<Vec<(CString, usize, &'static AtomicU64)>> = Mutex::new(Vec::new());
/// The function that [`count_level_zero`] was told to hide.
static HIDDEN: OnceLock<CString> = OnceLock::new();

/// Puts counting stubs between the product and the linked-in software driver, and hides the function `hidden` from it.
/// To be called before the process's first communicator.
pub fn count_level_zero(hidden: Option<&CStr>) {
    if let Some(name) = hidden {
        HIDDEN.set(name.to_owned()).expect("one function is hidden, once");
    }
    assert!(ccl_ze::hooks::RESOLVER.set(resolve).is_ok(), "the driver's functions are resolved once");
}

/// Calls so far, by function; functions never called are left out.
pub fn level_zero_calls() -> BTreeMap<String, u64> {
    let stubs = STUBS.lock().expect("no panic under it");
    let counts =
        stubs.iter().map(|(name, _, count)| (name.to_string_lossy().into_owned(), count.load(Ordering::Relaxed)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// All calls so far.
pub fn level_zero_total() -> u64 {
    STUBS.lock().expect("no panic under it").iter().map(|(_, _, count)| count.load(Ordering::Relaxed)).sum()
}

fn resolve(name: &CStr) -> *const c_void {
    if HIDDEN.get().is_some_and(|hidden| hidden.as_c_str() == name) {
        return std::ptr::null();
    }
    let target = match name.to_bytes() {
        b"zeDriverGetExtensionFunctionAddress" => extension_address as *const c_void,
        _ => ze_soft::resolve(name),
    };
    stub(name, target)
}

/// The driver's own answer, with a stub in front of what it finds.
unsafe extern "C" fn extension_address(
    driver: ze_driver_handle_t,
    name: *const c_char,
    address: *mut *mut c_void,
) -> ze_result_t {
    type Get = unsafe extern "C" fn(ze_driver_handle_t, *const c_char, *mut *mut c_void) -> ze_result_t;
    let real = ze_soft::resolve(c"zeDriverGetExtensionFunctionAddress");
    // SAFETY: the driver's function of this name has this type.
    let real: Get = unsafe { std::mem::transmute(real) };
    // SAFETY: the product passes a terminated name.
    let text = unsafe { CStr::from_ptr(name) };
    if HIDDEN.get().is_some_and(|hidden| hidden.as_c_str() == text) {
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    // SAFETY: passed on from the caller.
    let result = unsafe { real(driver, name, address) };
    if result == ZE_RESULT_SUCCESS {
        // SAFETY: the driver has just stored the address there.
        unsafe { *address = stub(text, *address).cast_mut() };
    }
    result
}

/// A function that counts and goes on to `target`, with whatever arguments it was called with. Null stays null.
fn stub(name: &CStr, target: *const c_void) -> *const c_void {
    if target.is_null() {
        return target;
    }
    let mut stubs = STUBS.lock().expect("no panic under it");
    // The table is filled anew for each communicator; a function keeps its counter.
    let count = match stubs.iter().find(|(known, at, _)| known.as_c_str() == name && *at == target as usize) {
        Some((_, _, count)) => *count,
        None => {
            let count: &'static AtomicU64 = Box::leak(Box::default());
            stubs.push((name.to_owned(), target as usize, count));
            count
        }
    };
    code(count, target)
}

/// Machine code: `mov r11, counter; lock inc qword [r11]; mov r11, target; jmp r11`. No argument is in r11.
#[cfg(target_arch = "x86_64")]
fn code(count: &'static AtomicU64, target: *const c_void) -> *const c_void {
    static CODE: Mutex<BTreeMap<(usize, usize), usize>> = Mutex::new(BTreeMap::new());
    let key = (count.as_ptr() as usize, target as usize);
    let address = *CODE.lock().expect("no panic under it").entry(key).or_insert_with(|| {
        let mut bytes = vec![0x49, 0xBB];
        bytes.extend(key.0.to_le_bytes());
        bytes.extend([0xF0, 0x49, 0xFF, 0x03, 0x49, 0xBB]);
        bytes.extend(key.1.to_le_bytes());
        bytes.extend([0x41, 0xFF, 0xE3]);
        // SAFETY: a new page of its own, filled and made executable before its address is known to anybody; it is
        // never unmapped, since the driver's table may outlive everything else.
        unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED, "a page for a stub");
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.cast(), bytes.len());
            assert_eq!(libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC), 0, "an executable page");
            page as usize
        }
    });
    address as *const c_void
}

/// The system's allocator, which counts what all threads ask for while [`count_allocations`] runs.
pub struct CountingAllocator;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn note() {
    if COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: passed on to the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: passed on to the caller.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Allocations of the whole process during `body`, where [`CountingAllocator`] is the global allocator.
pub fn count_allocations(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    COUNTING.store(true, Ordering::SeqCst);
    body();
    COUNTING.store(false, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

/// What this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mapped ranges.
    pub mappings: usize,
    /// Threads.
    pub threads: usize,
    /// KiB of address space.
    pub address_space_kib: u64,
}

/// What this process holds now.
pub fn held() -> Held {
    let entries = |path: &str| std::fs::read_dir(path).expect("procfs").count();
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size in the status");
    Held {
        // The directory that is being read is one of them.
        descriptors: entries("/proc/self/fd") - 1,
        mappings: std::fs::read_to_string("/proc/self/maps").expect("procfs").lines().count(),
        threads: entries("/proc/self/task"),
        address_space_kib: size.trim().trim_end_matches("kB").trim().parse().expect("a number of kB"),
    }
}
