//! The OpenCL runtime: found once, kept for the life of the process.

use super::api::Api;
use libloading::Library;
use opencl_sys::*;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

const LIBRARY: &str = "libOpenCL.so.1";

/// A runtime with the one device that is used.
pub(super) struct Runtime {
    pub(super) api: Api,
    pub(super) context: cl_context,
    pub(super) device: cl_device_id,
    /// How many work-groups are resident at once.
    pub(super) compute_units: u32,
    /// How many bytes of local memory a group has.
    pub(super) local_memory: u64,
    /// What device it is, for messages.
    pub(super) name: String,
    /// Queues that no launch uses at the moment. All are in order.
    queues: Mutex<Vec<Queue>>,
}

struct Queue(cl_command_queue);

// SAFETY: OpenCL demands of a runtime that its functions can be called from any thread; a queue is a handle.
unsafe impl Send for Queue {}
// SAFETY: as above, for the context and the device.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

/// What a function's error code means to a reader.
pub(super) fn check(function: &str, code: cl_int) -> Result<(), String> {
    if code == CL_SUCCESS { Ok(()) } else { Err(format!("{function} of the OpenCL runtime failed with error {code}")) }
}

/// The runtime, or a sentence on what is missing.
pub(super) fn get() -> Result<&'static Runtime, &'static str> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            Runtime::find().map_err(|why| format!("ZE_SOFT_ENGINE=opencl needs an OpenCL runtime for the CPU: {why}"))
        })
        .as_ref()
        .map_err(String::as_str)
}

impl Runtime {
    fn find() -> Result<Self, String> {
        // SAFETY: loading an OpenCL library runs its initialisers, which is what whoever put it there asked for.
        let library = unsafe { Library::new(LIBRARY) }
            .map_err(|error| format!("{LIBRARY} can't be loaded ({error}); LD_LIBRARY_PATH must lead to it"))?;
        let api = Api::of(library).map_err(|error| format!("{LIBRARY} lacks a function: {error}"))?;
        let mut reasons = Vec::new();
        for device in devices(&api)? {
            match suitable(&api, device) {
                Ok(name) => {
                    let mut code = CL_SUCCESS;
                    // SAFETY: one device, of the platform that the runtime chooses for it; no callback.
                    let context =
                        unsafe { (api.clCreateContext)(null(), 1, &raw const device, None, null_mut(), &raw mut code) };
                    check("clCreateContext", code)?;
                    let compute_units = number(&api, device, CL_DEVICE_MAX_COMPUTE_UNITS)?;
                    let local_memory = number(&api, device, CL_DEVICE_LOCAL_MEM_SIZE)?;
                    return Ok(Self {
                        api,
                        context,
                        device,
                        compute_units,
                        local_memory,
                        name,
                        queues: Mutex::default(),
                    });
                }
                Err(why) => reasons.push(why),
            }
        }
        if reasons.is_empty() {
            let text = "knows of no CPU device; OCL_ICD_FILENAMES and OCL_ICD_VENDORS name the runtime's library";
            return Err(format!("{LIBRARY} {text}"));
        }
        Err(reasons.join("; "))
    }

    /// Lends a queue for a while.
    pub(super) fn with_queue<R>(&self, body: impl FnOnce(cl_command_queue) -> R) -> Result<R, String> {
        let spare = self.queues.lock().pop();
        let queue = match spare {
            Some(queue) => queue,
            None => {
                let mut code = CL_SUCCESS;
                // SAFETY: a live context and its device; no properties: in order.
                let queue = unsafe {
                    (self.api.clCreateCommandQueueWithProperties)(self.context, self.device, null(), &raw mut code)
                };
                check("clCreateCommandQueueWithProperties", code)?;
                Queue(queue)
            }
        };
        let result = body(queue.0);
        self.queues.lock().push(queue);
        Ok(result)
    }
}

/// The CPU devices of all platforms.
fn devices(api: &Api) -> Result<Vec<cl_device_id>, String> {
    const MOST: usize = 16;
    let (mut platforms, mut count) = ([null_mut(); MOST], 0);
    // SAFETY: the array has as many places as it is said to have.
    let code = unsafe { (api.clGetPlatformIDs)(MOST as u32, platforms.as_mut_ptr(), &raw mut count) };
    // The loader of the runtimes answers so when there is none.
    const NO_PLATFORM: cl_int = -1001;
    if code == NO_PLATFORM {
        return Ok(Vec::new());
    }
    check("clGetPlatformIDs", code)?;
    let mut found = Vec::new();
    for platform in platforms.into_iter().take(count as usize) {
        let (mut devices, mut count) = ([null_mut(); MOST], 0);
        let get = api.clGetDeviceIDs;
        // SAFETY: a platform that the runtime named; the array has as many places as it is said to have.
        let code = unsafe { get(platform, CL_DEVICE_TYPE_CPU, MOST as u32, devices.as_mut_ptr(), &raw mut count) };
        // A platform without such a device says so by an error.
        if code == CL_SUCCESS {
            found.extend(devices.into_iter().take(count as usize));
        }
    }
    Ok(found)
}

/// The name of a device that can do what is needed, or what it can't do.
fn suitable(api: &Api, device: cl_device_id) -> Result<String, String> {
    let name = format!("{} (driver {})", text(api, device, CL_DEVICE_NAME)?, text(api, device, CL_DRIVER_VERSION)?);
    let svm: cl_device_svm_capabilities = number(api, device, CL_DEVICE_SVM_CAPABILITIES)?;
    if svm & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM == 0 {
        return Err(format!(
            "{name} can't reach the host's memory by plain pointers (no fine-grain system SVM: capabilities {svm:#x})"
        ));
    }
    let languages = text(api, device, CL_DEVICE_IL_VERSION)?;
    if !languages.contains("SPIR-V") {
        return Err(format!("{name} takes no SPIR-V (intermediate languages: {languages:?})"));
    }
    Ok(name)
}

fn number<T: Default>(api: &Api, device: cl_device_id, what: cl_device_info) -> Result<T, String> {
    let mut value = T::default();
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the callers name types that are what the runtime writes for `what`: plain numbers.
    check("clGetDeviceInfo", unsafe { (api.clGetDeviceInfo)(device, what, size_of::<T>(), place, null_mut()) })?;
    Ok(value)
}

fn text(api: &Api, device: cl_device_id, what: cl_device_info) -> Result<String, String> {
    // SAFETY: a null place with room for nothing asks for the size, then the buffer has that size.
    read_text("clGetDeviceInfo", |size, place, needed| unsafe {
        (api.clGetDeviceInfo)(device, what, size, place, needed)
    })
}

/// Reads a text in OpenCL's manner: first its size, then its bytes.
pub(super) fn read_text(
    function: &str,
    query: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<String, String> {
    let mut size = 0;
    check(function, query(0, null_mut(), &raw mut size))?;
    let mut bytes = vec![0u8; size];
    check(function, query(size, bytes.as_mut_ptr().cast(), null_mut()))?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned())
}
