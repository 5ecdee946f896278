//! The floating-point environment of a kernel.

/// Sets round-to-nearest-even with subnormals kept and all exceptions masked; puts back the caller's on drop.
///
/// A kernel may run on the thread of whoever waits, and that thread may have flush-to-zero on.
pub(super) struct DefaultFp {
    #[cfg(target_arch = "x86_64")]
    saved: u32,
}

/// MXCSR as the ABI has it, and its bits that say what was met so far rather than what is to be done.
#[cfg(target_arch = "x86_64")]
const STANDARD: u32 = 0x1F80;
#[cfg(target_arch = "x86_64")]
const MET: u32 = 0x3F;

impl DefaultFp {
    pub(super) fn enter() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let mut saved = 0u32;
            // SAFETY: stores MXCSR through a valid pointer.
            unsafe { std::arch::asm!("stmxcsr [{saved}]", saved = in(reg) &raw mut saved, options(nostack)) };
            if saved & !MET != STANDARD {
                // SAFETY: loads the ABI's default. Floating-point code of the kernel is behind function calls that are
                // not inlined across this (`#[inline(never)]` in `reduce`), so that none moves before it.
                unsafe { load(&STANDARD) };
            }
            Self { saved }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self {}
    }
}

impl Drop for DefaultFp {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.saved & !MET != STANDARD {
            // SAFETY: puts back what `enter` read.
            unsafe { load(&self.saved) };
        }
    }
}

/// # Safety
/// A value that MXCSR may have.
#[cfg(target_arch = "x86_64")]
unsafe fn load(value: &u32) {
    // SAFETY: reads a valid word.
    unsafe { std::arch::asm!("ldmxcsr [{value}]", value = in(reg) &raw const *value, options(nostack)) };
}
