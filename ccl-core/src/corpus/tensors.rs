//! The file of one event on one rank: its tensors as safetensors, inputs and outputs told apart by prefix.

use std::borrow::Cow;

use safetensors::tensor::{Dtype, SafeTensors, View};

use super::event::{ElementType, Event, Role};
use super::sha256;
use crate::DataType;

/// Between a role and a name in a file.
const SEPARATOR: char = '.';

fn key(role: Role, name: &str) -> String {
    let role = match role {
        Role::Input => "input",
        Role::Output => "output",
    };
    format!("{role}{SEPARATOR}{name}")
}

const fn stored_type(dtype: ElementType) -> Dtype {
    match dtype {
        ElementType::Bool => Dtype::BOOL,
        ElementType::Data(DataType::Int8) => Dtype::I8,
        ElementType::Data(DataType::Uint8) => Dtype::U8,
        ElementType::Data(DataType::Int32) => Dtype::I32,
        ElementType::Data(DataType::Uint32) => Dtype::U32,
        ElementType::Data(DataType::Int64) => Dtype::I64,
        ElementType::Data(DataType::Uint64) => Dtype::U64,
        ElementType::Data(DataType::Float16) => Dtype::F16,
        ElementType::Data(DataType::Float32) => Dtype::F32,
        ElementType::Data(DataType::Float64) => Dtype::F64,
        ElementType::Data(DataType::Bfloat16) => Dtype::BF16,
    }
}

/// A tensor as it is put into a file.
pub(super) struct Stored<'a> {
    pub(super) role: Role,
    pub(super) name: &'a str,
    pub(super) dtype: ElementType,
    pub(super) shape: &'a [u64],
    pub(super) bytes: &'a [u8],
}

struct Viewed<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl View for Viewed<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The one file that holds these tensors.
pub(super) fn encode<'a>(tensors: impl IntoIterator<Item = Stored<'a>>) -> Result<Vec<u8>, String> {
    let views = tensors.into_iter().map(|tensor| {
        let shape = tensor.shape.iter().map(|extent| *extent as usize).collect();
        (key(tensor.role, tensor.name), Viewed { dtype: stored_type(tensor.dtype), shape, bytes: tensor.bytes })
    });
    safetensors::serialize(views, None).map_err(|error| error.to_string())
}

/// An event's file in memory, found to be the one that the manifest describes.
pub struct Loaded {
    bytes: Vec<u8>,
    /// By position in the event's list: where the tensor's bytes are.
    places: Vec<std::ops::Range<usize>>,
}

/// A file that is not the one of the manifest.
pub(super) struct Changed {
    /// In words, with the first byte that is known to differ, or the narrowest range.
    pub(super) why: String,
    /// The tensors, if they can be made out.
    pub(super) tensors: Option<Loaded>,
    /// Positions of the tensors that changed.
    pub(super) suspects: Vec<usize>,
}

impl Loaded {
    /// Checks a file's bytes against the manifest.
    pub(super) fn new(event: &Event, bytes: Vec<u8>) -> Result<Loaded, Changed> {
        let nothing = |why| Changed { why, tensors: None, suspects: Vec::new() };
        if bytes.len() as u64 != event.file.bytes {
            return Err(nothing(format!("{} bytes, not the {} of the manifest", bytes.len(), event.file.bytes)));
        }
        let intact = sha256(&bytes) == event.file.sha256;
        let places = places(event, &bytes).map_err(nothing)?;
        let loaded = Loaded { bytes, places };
        let suspects: Vec<usize> =
            (0..event.tensors.len()).filter(|&at| sha256(loaded.bytes_of(at)) != event.tensors[at].sha256).collect();
        if intact && suspects.is_empty() {
            return Ok(loaded);
        }
        let ranges = suspects.iter().map(|&at| {
            let (tensor, place) = (&event.tensors[at], &loaded.places[at]);
            format!("in {} (bytes {} to {})", key(tensor.role, &tensor.name), place.start, place.end - 1)
        });
        let ranges: Vec<String> = ranges.collect();
        let why = match ranges.is_empty() {
            true => "its SHA-256 is not the one of the manifest".into(),
            false => format!("its SHA-256 is not the one of the manifest: changed {}", ranges.join(", ")),
        };
        Err(Changed { why, tensors: Some(loaded), suspects })
    }

    /// The bytes of the event's tensor at this position.
    pub fn bytes_of(&self, position: usize) -> &[u8] {
        &self.bytes[self.places[position].clone()]
    }

    /// The bytes of the event's tensor of this role and name.
    pub fn tensor(&self, event: &Event, role: Role, name: &str) -> Option<&[u8]> {
        let position = event.tensors.iter().position(|tensor| tensor.role == role && tensor.name == name)?;
        Some(self.bytes_of(position))
    }

    /// Where in the file the tensor at this position begins.
    pub(super) fn offset(&self, position: usize) -> usize {
        self.places[position].start
    }
}

/// Where each tensor of the event lies in a file of the right size; an error names the first byte of the file's header
/// that is not as this code writes it.
fn places(event: &Event, file: &[u8]) -> Result<Vec<std::ops::Range<usize>>, String> {
    // The header depends on names, types and shapes alone, so it can be written again and compared byte by byte.
    let mut zeros = Vec::new();
    let lengths: Option<Vec<usize>> =
        event.tensors.iter().map(|tensor| tensor.bytes().and_then(|bytes| usize::try_from(bytes).ok())).collect();
    let lengths = lengths.filter(|lengths| lengths.iter().all(|length| *length <= file.len()));
    let lengths = lengths.ok_or("tensors in the manifest that are larger than the file")?;
    zeros.resize(lengths.iter().copied().max().unwrap_or(0), 0);
    let expected = encode(event.tensors.iter().zip(&lengths).map(|(tensor, length)| Stored {
        role: tensor.role,
        name: &tensor.name,
        dtype: tensor.dtype,
        shape: &tensor.shape,
        bytes: &zeros[..*length],
    }))?;
    let (header, metadata) = SafeTensors::read_metadata(&expected).map_err(|error| error.to_string())?;
    let data = header + size_of::<u64>();
    if expected.len() != file.len() {
        return Err(format!("{} bytes, but the manifest's tensors take {}", file.len(), expected.len()));
    }
    if let Some(byte) = expected[..data].iter().zip(file).position(|(a, b)| a != b) {
        return Err(format!("byte {byte}, in its header, is {:#04x}, not {:#04x}", file[byte], expected[byte]));
    }
    let place = |tensor: &super::event::Tensor| {
        let key = key(tensor.role, &tensor.name);
        let info = metadata.info(&key).ok_or_else(|| format!("no tensor '{key}'"))?;
        Ok(data + info.data_offsets.0..data + info.data_offsets.1)
    };
    event.tensors.iter().map(place).collect()
}
