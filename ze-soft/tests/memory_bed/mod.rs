//! What the tests of the driver's own half share: a driver, its devices and a context, and calls that must succeed.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use level_zero_sys::*;
use std::ffi::{CStr, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use ze_soft::ext::*;

pub struct Bed {
    pub ze: Table,
    pub driver: ze_driver_handle_t,
    pub devices: Vec<ze_device_handle_t>,
    pub context: ze_context_handle_t,
}

#[track_caller]
pub fn ok(code: ze_result_t) {
    assert_eq!(code, ZE_RESULT_SUCCESS, "{code:#x}");
}

impl Bed {
    pub fn new() -> Self {
        let ze = Table::load_with(ze_soft::resolve).unwrap();
        let (mut driver, mut count) = (std::ptr::null_mut(), 1);
        let mut context = std::ptr::null_mut();
        let desc = ze_context_desc_t::default();
        unsafe {
            ok((ze.zeInit)(0));
            ok((ze.zeDriverGet)(&raw mut count, &raw mut driver));
            let mut count = 0;
            ok((ze.zeDeviceGet)(driver, &raw mut count, std::ptr::null_mut()));
            let mut devices = vec![std::ptr::null_mut(); count as usize];
            ok((ze.zeDeviceGet)(driver, &raw mut count, devices.as_mut_ptr()));
            ok((ze.zeContextCreate)(driver, &raw const desc, &raw mut context));
            Self { ze, driver, devices, context }
        }
    }

    pub fn description(&self) -> String {
        let mut text = std::ptr::null();
        unsafe {
            ok((self.ze.zeDriverGetLastErrorDescription)(self.driver, &raw mut text));
            CStr::from_ptr(text).to_str().unwrap().to_owned()
        }
    }

    pub fn try_alloc(&self, device: usize, size: usize, alignment: usize) -> Result<*mut u8, ze_result_t> {
        let mut pointer = std::ptr::null_mut();
        let desc = ze_device_mem_alloc_desc_t::default();
        let code = unsafe {
            (self.ze.zeMemAllocDevice)(
                self.context,
                &raw const desc,
                size,
                alignment,
                self.devices[device],
                &raw mut pointer,
            )
        };
        if code == ZE_RESULT_SUCCESS { Ok(pointer.cast()) } else { Err(code) }
    }

    #[track_caller]
    pub fn alloc(&self, device: usize, size: usize) -> *mut u8 {
        self.try_alloc(device, size, 0).unwrap()
    }

    pub fn free(&self, pointer: *mut u8) -> ze_result_t {
        unsafe { (self.ze.zeMemFree)(self.context, pointer.cast()) }
    }

    pub fn properties(&self, pointer: *const u8) -> (ze_memory_type_t, u64, ze_device_handle_t) {
        let mut properties = ze_memory_allocation_properties_t::default();
        let mut device = std::ptr::null_mut();
        ok(unsafe {
            (self.ze.zeMemGetAllocProperties)(self.context, pointer.cast(), &raw mut properties, &raw mut device)
        });
        (properties.r#type, properties.id, device)
    }

    pub fn range(&self, pointer: *const u8) -> Result<(*mut u8, usize), ze_result_t> {
        let (mut base, mut size) = (std::ptr::null_mut(), 0);
        match unsafe { (self.ze.zeMemGetAddressRange)(self.context, pointer.cast(), &raw mut base, &raw mut size) } {
            ZE_RESULT_SUCCESS => Ok((base.cast(), size)),
            code => Err(code),
        }
    }

    pub fn handle(&self, pointer: *const u8) -> Result<ze_ipc_mem_handle_t, ze_result_t> {
        let mut handle = ze_ipc_mem_handle_t::default();
        match unsafe { (self.ze.zeMemGetIpcHandle)(self.context, pointer.cast(), &raw mut handle) } {
            ZE_RESULT_SUCCESS => Ok(handle),
            code => Err(code),
        }
    }

    pub fn put(&self, handle: ze_ipc_mem_handle_t) -> ze_result_t {
        unsafe { (self.ze.zeMemPutIpcHandle)(self.context, handle) }
    }

    pub fn open(&self, device: usize, handle: ze_ipc_mem_handle_t) -> Result<*mut u8, ze_result_t> {
        let mut pointer = std::ptr::null_mut();
        let device = self.devices[device];
        match unsafe { (self.ze.zeMemOpenIpcHandle)(self.context, device, handle, 0, &raw mut pointer) } {
            ZE_RESULT_SUCCESS => Ok(pointer.cast()),
            code => Err(code),
        }
    }

    pub fn close(&self, pointer: *const u8) -> ze_result_t {
        unsafe { (self.ze.zeMemCloseIpcHandle)(self.context, pointer.cast()) }
    }

    pub fn descriptor(&self, handle: ze_ipc_mem_handle_t) -> Result<RawFd, ze_result_t> {
        let mut number = u64::MAX;
        let get = self.ze.zeMemGetFileDescriptorFromIpcHandleExp.unwrap();
        match unsafe { get(self.context, handle, &raw mut number) } {
            ZE_RESULT_SUCCESS => Ok(number.try_into().unwrap()),
            code => Err(code),
        }
    }

    pub fn handle_of(&self, descriptor: RawFd) -> Result<ze_ipc_mem_handle_t, ze_result_t> {
        let mut handle = ze_ipc_mem_handle_t::default();
        let make = self.ze.zeMemGetIpcHandleFromFileDescriptorExp.unwrap();
        match unsafe { make(self.context, descriptor as u64, &raw mut handle) } {
            ZE_RESULT_SUCCESS => Ok(handle),
            code => Err(code),
        }
    }

    fn extension(&self, name: &CStr) -> *mut c_void {
        let mut address = std::ptr::null_mut();
        ok(unsafe { (self.ze.zeDriverGetExtensionFunctionAddress)(self.driver, name.as_ptr(), &raw mut address) });
        address
    }

    pub fn fault(&self, kind: u32, device: u32, ordinal: u32, value: u64, seed: u64) -> ze_result_t {
        let function: zeSoftFault_t = unsafe { std::mem::transmute(self.extension(FAULT_NAME)) };
        let size = size_of::<zesoft_fault_t>() as u32;
        let fault = zesoft_fault_t { size, kind, device, ordinal, value, seed };
        unsafe { function(&raw const fault) }
    }

    pub fn register(&self, sha: &[u8; 32], name: &CStr, function: zesoft_kernel_fn, sizes: &[usize]) -> ze_result_t {
        let register: zeSoftRegisterKernel_t = unsafe { std::mem::transmute(self.extension(REGISTER_KERNEL_NAME)) };
        unsafe { register(sha, name.as_ptr(), Some(function), sizes.len() as u32, sizes.as_ptr()) }
    }
}

/// Runs the test of this name, which plays the child there, in a new process with these variables and one end of a
/// socket as its standard input.
pub fn spawn(test: &str, variables: &[(&str, &str)]) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("ZE_SOFT_TEST_CHILD", "1")
        .envs(variables.iter().copied())
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    ours.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    (child, ours)
}

pub fn is_child() -> bool {
    std::env::var_os("ZE_SOFT_TEST_CHILD").is_some()
}

/// The child's end of the socket that `spawn` made.
pub fn parent() -> UnixStream {
    let stream = unsafe { UnixStream::from_raw_fd(0) };
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream
}

/// Sends 64 bytes and a descriptor.
pub fn send(stream: &UnixStream, handle: &ze_ipc_mem_handle_t, descriptor: RawFd) {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let bytes = unsafe { std::slice::from_raw_parts(handle.data.as_ptr().cast::<u8>(), 64) };
    let descriptors = [descriptor];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let sent =
        sendmsg::<()>(stream.as_raw_fd(), &[std::io::IoSlice::new(bytes)], &rights, MsgFlags::empty(), None).unwrap();
    assert_eq!(sent, 64);
}

/// Receives what `send` sent.
pub fn receive(stream: &UnixStream) -> (ze_ipc_mem_handle_t, OwnedFd) {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut handle = ze_ipc_mem_handle_t::default();
    let bytes = unsafe { std::slice::from_raw_parts_mut(handle.data.as_mut_ptr().cast::<u8>(), 64) };
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut slices = [std::io::IoSliceMut::new(bytes)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC).unwrap();
    assert_eq!(message.bytes, 64);
    let descriptor = message
        .cmsgs()
        .unwrap()
        .find_map(|rights| match rights {
            ControlMessageOwned::ScmRights(descriptors) => descriptors.first().copied(),
            _ => None,
        })
        .unwrap();
    (handle, unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Open descriptors, mappings and threads of this process.
pub fn holdings() -> (usize, usize, usize) {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    (count("/proc/self/fd"), maps, count("/proc/self/task"))
}
