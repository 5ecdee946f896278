//! The GPUs, found when first asked for.

use super::api::*;
use crate::config;
use libloading::Library;
use parking_lot::Mutex;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const LIBRARY: &str = "libcuda.so.1";

/// The least architecture with the memory model that kernels and signals rest on.
const LEAST_ARCHITECTURE: u32 = 70;

/// CUDA's driver, and the GPUs that it shows.
pub(super) struct Runtime {
    pub(super) api: Api,
    count: u32,
    gpus: Vec<OnceLock<Result<Gpu, String>>>,
    /// The first GPU that was used, plus one: host memory is made known through it.
    first: AtomicUsize,
}

/// A GPU that this process uses.
pub(super) struct Gpu {
    pub(super) api: &'static Api,
    context: CUcontext,
    pub(super) name: String,
    pub(super) multiprocessors: u32,
    pub(super) memory: u64,
    /// Ten times the compute capability.
    pub(super) architecture: u32,
    /// How many of the driver's devices play on it.
    pub(super) sharers: u32,
    store32: CUfunction,
    store64: CUfunction,
    stamp: CUfunction,
    /// Whether streams can store on their own; else it takes a kernel.
    stream_stores: bool,
    /// For questions to the clock.
    clock: Mutex<(CUstream, Word)>,
}

/// The driver, or a sentence on what is missing.
pub(super) fn get() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let found = RUNTIME.get_or_init(|| {
        Runtime::find().map_err(|why| format!("ZE_SOFT_ENGINE=cuda needs an NVIDIA GPU and its driver: {why}"))
    });
    found.as_ref().map_err(String::clone)
}

impl Runtime {
    fn find() -> Result<Self, String> {
        // SAFETY: loading CUDA's library runs its initialisers, which is what whoever installed it asked for.
        let library =
            unsafe { Library::new(LIBRARY) }.map_err(|error| format!("{LIBRARY} can't be loaded ({error})"))?;
        let api = Api::of(library).map_err(|error| format!("{LIBRARY} lacks a function: {error}"))?;
        let mut count: c_int = 0;
        // SAFETY: the first calls of all, in order; a place for the number.
        unsafe {
            cuda!(&api, cuInit(0))?;
            cuda!(&api, cuDeviceGetCount(&raw mut count))?;
        }
        let count = u32::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(format!("{LIBRARY} shows no GPU"));
        }
        let gpus = (0..count).map(|_| OnceLock::new()).collect();
        Ok(Self { api, count, gpus, first: AtomicUsize::new(0) })
    }

    /// The GPU that a device of the driver plays on.
    pub(super) fn gpu(&'static self, device: u32) -> Result<&'static Gpu, String> {
        let number = device % self.count;
        let made = self.gpus[number as usize].get_or_init(|| {
            let devices = config::get().devices;
            let sharers = (0..devices).filter(|other| other % self.count == number).count();
            Gpu::open(&self.api, number, sharers.max(1) as u32)
        });
        let gpu = made.as_ref().map_err(String::clone)?;
        let _ = self.first.compare_exchange(0, number as usize + 1, Ordering::Relaxed, Ordering::Relaxed);
        Ok(gpu)
    }

    /// Whether the GPUs of two devices reach each other's memory.
    pub(super) fn reaches(&self, a: u32, b: u32) -> bool {
        let (a, b) = ((a % self.count) as c_int, (b % self.count) as c_int);
        let reaches = |from: c_int, to: c_int| {
            let (mut device, mut peer, mut can) = (0, 0, 0);
            // SAFETY: numbers below the count, and places for the answers.
            let asked = unsafe {
                cuda!(&self.api, cuDeviceGet(&raw mut device, from))
                    .and_then(|()| cuda!(&self.api, cuDeviceGet(&raw mut peer, to)))
                    .and_then(|()| cuda!(&self.api, cuDeviceCanAccessPeer(&raw mut can, device, peer)))
            };
            asked.is_ok() && can != 0
        };
        a == b || (reaches(a, b) && reaches(b, a))
    }

    /// Any GPU: the first that was used, or that of the first device that this process sees.
    pub(super) fn first(&'static self) -> Result<&'static Gpu, String> {
        let device = match self.first.load(Ordering::Relaxed) {
            0 => config::get().visible.first().copied().unwrap_or(0),
            number => number as u32 - 1,
        };
        self.gpu(device)
    }
}

impl Gpu {
    fn open(api: &'static Api, number: u32, sharers: u32) -> Result<Self, String> {
        let (mut device, mut context) = (0, CUcontext::NULL);
        let mut name = [0; 128];
        let mut memory = 0usize;
        // SAFETY: a number below the count; places of the types and the size that are said; the context is the process's
        // own primary one and is never released.
        unsafe {
            cuda!(api, cuDeviceGet(&raw mut device, number as c_int))?;
            cuda!(api, cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
            cuda!(api, cuDeviceTotalMem(&raw mut memory, device))?;
            cuda!(api, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            cuda!(api, cuCtxSetCurrent(context))?;
        }
        // SAFETY: the array's last byte stayed zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let ask = |what| {
            let mut value: c_int = 0;
            // SAFETY: a device of the library's and a place for the number.
            unsafe { cuda!(api, cuDeviceGetAttribute(&raw mut value, what, device)) }.map(|()| value.max(0) as u32)
        };
        let architecture = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? * 10
            + ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if architecture < LEAST_ARCHITECTURE {
            return Err(format!("{name} is of architecture {architecture}, older than {LEAST_ARCHITECTURE}"));
        }
        if ask(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? == 0 {
            return Err(format!("{name} doesn't reach the host's memory by the host's addresses"));
        }
        let helpers = concat!(include_str!("helpers.ptx"), "\0");
        let mut module = CUmodule::NULL;
        // SAFETY: a current context, a text with its terminator, and a place for the handle, which is kept for ever.
        unsafe { cuda!(api, cuModuleLoadData(&raw mut module, helpers.as_ptr().cast())) }?;
        let mut clock = CUstream::NULL;
        // SAFETY: a current context and a place for the handle.
        unsafe { cuda!(api, cuStreamCreate(&raw mut clock, CU_STREAM_NON_BLOCKING)) }?;
        let mut gpu = Self {
            api,
            context,
            name,
            multiprocessors: ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
            architecture,
            sharers,
            store32: function(api, module, c"store32")?,
            store64: function(api, module, c"store64")?,
            stamp: function(api, module, c"stamp")?,
            stream_stores: false,
            clock: Mutex::new((clock, Word::new(api)?)),
        };
        gpu.stream_stores = gpu.stores_work()?;
        Ok(gpu)
    }

    /// Makes it the one that this thread's calls mean.
    pub(super) fn enter(&self) -> Result<(), String> {
        // SAFETY: a context that is never released.
        unsafe { cuda!(self.api, cuCtxSetCurrent(self.context)) }
    }

    /// Whether a stream's own stores arrive.
    fn stores_work(&self) -> Result<bool, String> {
        let clock = self.clock.lock();
        let (stream, word) = (clock.0, &clock.1);
        // SAFETY: a live stream, and a word that the GPU reaches.
        let stored = unsafe { (self.api.cuStreamWriteValue64)(stream, word.address(), 1, 0) } == CUDA_SUCCESS;
        // SAFETY: a live stream.
        unsafe { cuda!(self.api, cuStreamSynchronize(stream)) }?;
        Ok(stored && word.get() == 1)
    }

    /// The GPU's clock now.
    pub(super) fn timestamp(&self) -> Result<u64, String> {
        self.enter()?;
        let clock = self.clock.lock();
        let (stream, word) = (clock.0, &clock.1);
        // SAFETY: a live stream, and a word that the GPU reaches.
        unsafe {
            self.stamp(stream, word.address())?;
            cuda!(self.api, cuStreamSynchronize(stream))?;
        }
        Ok(word.get())
    }

    /// Has a stream store a word once all before is done and seen by all.
    ///
    /// # Safety
    /// A live stream; the place is aligned and the GPU reaches it until then.
    pub(super) unsafe fn store32(&self, stream: CUstream, place: CUdeviceptr, value: u32) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.stream_stores {
                return cuda!(self.api, cuStreamWriteValue32(stream, place, value, 0));
            }
            self.launch_one(self.store32, stream, &mut [(&raw const place).cast(), (&raw const value).cast()])
        }
    }

    /// As [`Self::store32`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn store64(&self, stream: CUstream, place: CUdeviceptr, value: u64) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.stream_stores {
                return cuda!(self.api, cuStreamWriteValue64(stream, place, value, 0));
            }
            self.launch_one(self.store64, stream, &mut [(&raw const place).cast(), (&raw const value).cast()])
        }
    }

    /// Has a stream store the GPU's time.
    ///
    /// # Safety
    /// As for [`Self::store32`].
    pub(super) unsafe fn stamp(&self, stream: CUstream, place: CUdeviceptr) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_one(self.stamp, stream, &mut [(&raw const place).cast()]) }
    }

    unsafe fn launch_one(
        &self,
        function: CUfunction,
        stream: CUstream,
        arguments: &mut [*const c_void],
    ) -> Result<(), String> {
        const ONE: c_uint = 1;
        let arguments = arguments.as_mut_ptr().cast();
        // SAFETY: the callers pass one pointer for each of the function's arguments; they are read during the call.
        unsafe {
            cuda!(self.api, cuLaunchKernel(function, ONE, ONE, ONE, ONE, ONE, ONE, 0, stream, arguments, null_mut()))
        }
    }
}

/// A function of a module.
pub(super) fn function(api: &Api, module: CUmodule, name: &CStr) -> Result<CUfunction, String> {
    let name = CString::from(name);
    let mut function = CUfunction::NULL;
    // SAFETY: a live module, a C string, and a place for the handle.
    unsafe { cuda!(api, cuModuleGetFunction(&raw mut function, module, name.as_ptr())) }?;
    Ok(function)
}

/// A word of the host's that GPUs store into. It is never given back: few are made.
pub(super) struct Word(&'static AtomicU64);

impl Word {
    pub(super) fn new(api: &Api) -> Result<Self, String> {
        const PAGE: usize = 4096;
        #[repr(align(4096))]
        struct Page([AtomicU64; PAGE / 8]);
        // A page to each: registered ranges must not overlap.
        let page: &'static Page = Box::leak(Box::new(Page([const { AtomicU64::new(0) }; PAGE / 8])));
        let start = std::ptr::from_ref(page).cast_mut().cast();
        // SAFETY: a whole page that is never freed; a context is current, as the callers see to.
        unsafe { cuda!(api, cuMemHostRegister(start, PAGE, CU_MEMHOSTREGISTER_PORTABLE_DEVICEMAP)) }?;
        Ok(Self(&page.0[0]))
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.0.as_ptr() as CUdeviceptr
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
