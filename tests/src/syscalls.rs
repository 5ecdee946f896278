//! Counting the system calls of a thread, without a tracer: the kernel sends SIGSYS instead of doing a call, and the
//! handler counts it and does it (Linux's syscall user dispatch).
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::cell::UnsafeCell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
const OFF: u64 = 0;
const ON: u64 = 1;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
const SA_RESTORER: u64 = 0x0400_0000;
const NUMBERS: usize = 512;

// The way back from the handler is itself a system call; the kernel lets those of this range through.
std::arch::global_asm!(
    ".globl ccl_tests_restore",
    "ccl_tests_restore:",
    "mov eax, 15",
    "syscall",
    ".globl ccl_tests_restore_end",
    "ccl_tests_restore_end:",
    "ud2",
);

unsafe extern "C" {
    fn ccl_tests_restore();
    fn ccl_tests_restore_end();
}

/// The kernel's own form of `sigaction`: only this one takes a restorer.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

thread_local! {
    static SELECTOR: UnsafeCell<u8> = const { UnsafeCell::new(ALLOW) };
}

static COUNTS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

/// System calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The call's number.
    pub number: i64,
    /// How often it was made.
    pub count: u64,
}

impl Count {
    /// Whether it is what a waiter does that gives the processor away or sleeps.
    pub fn yields_or_parks(&self) -> bool {
        [libc::SYS_sched_yield, libc::SYS_futex, libc::SYS_nanosleep, libc::SYS_clock_nanosleep].contains(&self.number)
    }
}

/// System calls that this thread makes during `body`, or why this kernel can't count them. One thread at a time.
pub fn count(body: impl FnOnce()) -> Result<Vec<Count>, String> {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(install);
    for count in &COUNTS {
        count.store(0, Ordering::Relaxed);
    }
    let selector = SELECTOR.with(UnsafeCell::get);
    let (start, end) = (ccl_tests_restore as *const () as usize, ccl_tests_restore_end as *const () as usize);
    // The instruction pointer that the kernel compares lies behind the `syscall` instruction.
    let (offset, length) = (start as u64, (end - start) as u64 + 1);
    // SAFETY: the selector lives as long as the thread, and dispatch is switched off below.
    if unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, offset, length, selector) } != 0 {
        return Err(format!("syscall user dispatch: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: this thread's own byte; volatile, since the kernel reads it.
    unsafe { selector.write_volatile(BLOCK) };
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    body();
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { selector.write_volatile(ALLOW) };
    // SAFETY: switches off what was switched on above.
    let off = unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0u64, 0u64, 0u64) };
    assert_eq!(off, 0, "dispatch is switched off");
    Ok(COUNTS
        .iter()
        .enumerate()
        .map(|(number, count)| Count { number: number as i64, count: count.load(Ordering::Relaxed) })
        .filter(|count| count.count > 0)
        .collect())
}

fn install() {
    let action = KernelAction {
        handler: handle as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER) as u64 | SA_RESTORER,
        restorer: ccl_tests_restore as *const () as usize,
        mask: 0,
    };
    let no_old = std::ptr::null_mut::<KernelAction>();
    // SAFETY: the action has the kernel's layout and outlives the call.
    let set = unsafe { libc::syscall(libc::SYS_rt_sigaction, libc::SIGSYS, &raw const action, no_old, 8usize) };
    assert_eq!(set, 0, "a handler for SIGSYS");
}

unsafe extern "C" fn handle(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let selector = SELECTOR.with(UnsafeCell::get);
    // SAFETY: this thread's own byte.
    unsafe { selector.write_volatile(ALLOW) };
    // SAFETY: the kernel passes the interrupted thread's context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let number = registers[libc::REG_RAX as usize];
    if let Some(count) = COUNTS.get(number as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    let mut result = number;
    // SAFETY: does exactly what the interrupted code asked the kernel for. Calls that act on the calling frame itself
    // (clone, vfork, rt_sigreturn) don't occur in what is measured.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") registers[libc::REG_RDI as usize],
            in("rsi") registers[libc::REG_RSI as usize],
            in("rdx") registers[libc::REG_RDX as usize],
            in("r10") registers[libc::REG_R10 as usize],
            in("r8") registers[libc::REG_R8 as usize],
            in("r9") registers[libc::REG_R9 as usize],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    registers[libc::REG_RAX as usize] = result;
    // SAFETY: as above.
    unsafe { selector.write_volatile(BLOCK) };
}
