//! The floating-point environment of a kernel.

/// Sets round-to-nearest-even with subnormals kept and all exceptions masked; puts back the caller's on drop.
///
/// A kernel may run on the thread of whoever waits, and that thread may have flush-to-zero on.
pub(super) struct DefaultFp {
    #[cfg(target_arch = "x86_64")]
    saved: u32,
}

impl DefaultFp {
    pub(super) fn enter() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let mut saved = 0u32;
            let standard = 0x1F80u32;
            // SAFETY: stores and loads MXCSR through valid pointers; the value is the ABI's default. Floating-point
            // code of the kernel is behind function calls that are not inlined across this (`#[inline(never)]` in
            // `reduce`), so that none moves before it.
            unsafe {
                std::arch::asm!(
                    "stmxcsr [{saved}]",
                    "ldmxcsr [{standard}]",
                    saved = in(reg) &raw mut saved,
                    standard = in(reg) &raw const standard,
                    options(nostack)
                );
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
        // SAFETY: puts back what `enter` read.
        unsafe {
            std::arch::asm!("ldmxcsr [{saved}]", saved = in(reg) &raw const self.saved, options(nostack));
        }
    }
}
