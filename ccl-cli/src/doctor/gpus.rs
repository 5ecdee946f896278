//! GPUs as the kernel shows them, and who may open them.

use nix::unistd::{Gid, Group, Uid, User, geteuid, getgroups};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Vendor on the PCI bus.
pub(super) const INTEL: u32 = 0x8086;

/// The class of display controllers on the PCI bus, in the upper of three bytes.
const DISPLAY: u32 = 0x03;

/// A GPU on the PCI bus, a render node, or both.
#[derive(Debug, Default, Serialize)]
pub(super) struct Gpu {
    /// Its PCI address; none for a node without one.
    pub(super) pci: Option<String>,
    pub(super) vendor_id: Option<u32>,
    pub(super) device_id: Option<u32>,
    /// Its driver in the kernel.
    pub(super) kernel_driver: Option<String>,
    /// Its node, whether this process sees it or not.
    pub(super) node: Option<String>,
    /// Whether the node is in /dev/dri.
    pub(super) node_exists: bool,
    /// Permissions, owner and group of the node.
    pub(super) mode: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) group: Option<String>,
    /// The group's number.
    pub(super) gid: Option<u32>,
    /// Whether this user is in that group.
    pub(super) in_group: bool,
    /// Whether this process may open it.
    pub(super) opens: bool,
    pub(super) open_error: Option<String>,
}

/// Where to look; a test has folders of its own.
pub(super) struct Places<'a> {
    pub(super) dri: &'a Path,
    pub(super) drm: &'a Path,
    pub(super) pci: &'a Path,
}

impl Default for Places<'_> {
    fn default() -> Self {
        Self { dri: Path::new("/dev/dri"), drm: Path::new("/sys/class/drm"), pci: Path::new("/sys/bus/pci/devices") }
    }
}

/// All GPUs, those on the bus first. Nothing that is missing or may not be read is an error.
pub(super) fn look(places: &Places) -> Vec<Gpu> {
    let mut gpus = Vec::new();
    for folder in entries(places.pci) {
        if number(&folder.join("class")).is_some_and(|class| class >> 16 == DISPLAY) {
            gpus.push(Gpu { pci: name(&folder), ..of_device(&folder) });
        }
    }
    // A node is known by the kernel's folder, by the file, or by both.
    let nodes = entries(places.drm).into_iter().chain(entries(places.dri)).filter_map(|path| name(&path));
    let nodes: BTreeMap<String, PathBuf> =
        nodes.filter(|name| name.starts_with("renderD")).map(|name| (name.clone(), places.dri.join(name))).collect();
    for (name_of_node, path) in nodes {
        let device = places.drm.join(&name_of_node).join("device");
        let pci = device.canonicalize().ok().and_then(|folder| name(&folder)).filter(|name| name.contains(':'));
        let known = gpus.iter().position(|gpu| gpu.pci.is_some() && gpu.pci == pci);
        let gpu = match known {
            Some(index) => &mut gpus[index],
            None => {
                gpus.push(Gpu { pci, ..of_device(&device) });
                let last = gpus.len() - 1;
                &mut gpus[last]
            }
        };
        gpu.node = Some(path.display().to_string());
        permissions(&path, gpu);
    }
    gpus
}

fn of_device(folder: &Path) -> Gpu {
    Gpu {
        vendor_id: number(&folder.join("vendor")),
        device_id: number(&folder.join("device")),
        kernel_driver: std::fs::read_link(folder.join("driver")).ok().and_then(|link| name(&link)),
        ..Gpu::default()
    }
}

fn permissions(path: &Path, gpu: &mut Gpu) {
    if let Ok(meta) = std::fs::metadata(path) {
        gpu.node_exists = true;
        gpu.mode = Some(format!("{:04o}", meta.mode() & 0o7777));
        let user = User::from_uid(Uid::from_raw(meta.uid())).ok().flatten();
        gpu.owner = Some(user.map_or_else(|| meta.uid().to_string(), |user| user.name));
        let group = Group::from_gid(Gid::from_raw(meta.gid())).ok().flatten();
        gpu.group = Some(group.map_or_else(|| meta.gid().to_string(), |group| group.name));
        gpu.gid = Some(meta.gid());
        let groups = getgroups().unwrap_or_default();
        gpu.in_group = nix::unistd::getegid().as_raw() == meta.gid() || groups.iter().any(|g| g.as_raw() == meta.gid());
    }
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(_) => gpu.opens = true,
        Err(error) => gpu.open_error = Some(error.to_string()),
    }
}

/// The user's name, or number.
pub(super) fn user() -> String {
    let uid = geteuid();
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// A hexadecimal number in a file of sysfs.
fn number(path: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(path).ok()?;
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nodes_and_bus_are_one_list() {
        let root = tempfile::tempdir().unwrap();
        let (dri, drm, pci) = (root.path().join("dri"), root.path().join("drm"), root.path().join("pci"));
        for (address, class, device) in [
            ("0000:00:02.0", "0x030000", "0x56a0"),
            ("0000:03:00.0", "0x038000", "0xe20b"),
            ("0000:04:00.0", "0x020000", "0x1"),
        ] {
            let folder = pci.join(address);
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("class", class), ("vendor", "0x8086"), ("device", device)] {
                std::fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        }
        std::fs::create_dir_all(drm.join("renderD128")).unwrap();
        symlink(pci.join("0000:03:00.0"), drm.join("renderD128/device")).unwrap();
        symlink(root.path().join("xe"), pci.join("0000:03:00.0/driver")).unwrap();
        std::fs::create_dir_all(&dri).unwrap();
        std::fs::write(dri.join("renderD129"), "").unwrap();

        let gpus = look(&Places { dri: &dri, drm: &drm, pci: &pci });
        assert_eq!(gpus.len(), 3, "{gpus:?}");
        assert_eq!((gpus[0].pci.as_deref(), gpus[0].kernel_driver.as_deref()), (Some("0000:00:02.0"), None));
        assert_eq!(gpus[0].node, None);
        assert_eq!((gpus[1].device_id, gpus[1].kernel_driver.as_deref()), (Some(0xe20b), Some("xe")));
        assert!(gpus[1].node.is_some() && !gpus[1].node_exists && !gpus[1].opens, "{:?}", gpus[1]);
        assert!(gpus[2].pci.is_none() && gpus[2].node_exists && gpus[2].opens, "{:?}", gpus[2]);
    }

    #[test]
    fn a_machine_without_any_of_it_has_no_gpu() {
        let nowhere = Path::new("/nonexistent");
        assert!(look(&Places { dri: nowhere, drm: nowhere, pci: nowhere }).is_empty());
    }
}
