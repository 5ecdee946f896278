"""dpctl's queues, memory and events on the software driver."""

import dpctl
import dpctl.memory as memory
import numpy as np

devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
assert len(devices) >= 2 and all(device.name.startswith("ze-soft") for device in devices), devices
for number, device in enumerate(devices[:2]):
    queue = dpctl.SyclQueue(device, property="in_order")
    # What a library gets that takes a sycl::queue.
    assert queue.is_in_order and queue.addressof_ref() != 0
    source = np.arange(5000, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(number)
    back = np.zeros_like(source)
    on_device = memory.MemoryUSMDevice(source.nbytes, queue=queue)
    shared = memory.MemoryUSMShared(source.nbytes, queue=queue)
    on_host = memory.MemoryUSMHost(source.nbytes, queue=queue)
    on_device.copy_from_host(source.view(np.uint8))
    queue.memcpy_async(shared, on_device, source.nbytes)
    joined = queue.submit_barrier()
    other = dpctl.SyclQueue(queue.sycl_context, device, property="in_order")
    other.submit_barrier([joined])
    other.memcpy_async(on_host, shared, source.nbytes).wait()
    on_host.copy_to_host(back.view(np.uint8))
    assert (back == source).all()
    on_device.memset(0x5A)
    on_device.copy_to_host(back.view(np.uint8))
    assert (back == 0x5A5A5A5A).all()
    queue.wait()
print("from_python: ok")
