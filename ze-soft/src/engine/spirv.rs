//! What a SPIR-V module says of its kernels. Nothing is guessed: what can't be read is refused.

use crate::ext::{MAX_ARGUMENTS, MAX_ARGUMENTS_SIZE};
use rspirv::dr::{Instruction, Module, Operand, load_bytes};
use rspirv::spirv::{
    AddressingModel, Decoration, ExecutionMode, ExecutionModel, FunctionParameterAttribute, Op, StorageClass, Word,
};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fmt::Display;

/// A kernel, as its module declares it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) name: CString,
    pub(super) parameters: Vec<Parameter>,
    /// The group size that it demands.
    pub(super) group_size: Option<[u32; 3]>,
    /// The sub-group size that it demands.
    pub(super) subgroup_size: Option<u32>,
}

/// What one argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// A pointer to global or constant memory.
    Pointer,
    /// A pointer to local memory, whose size is set instead of a value.
    Local,
    /// A value of so many bytes.
    Value(usize),
}

impl Parameter {
    /// The bytes that a launch keeps for it.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Pointer | Self::Local => 8,
            Self::Value(size) => size,
        }
    }
}

/// The kernels of a module.
pub(super) fn kernels(image: &[u8]) -> Result<Vec<Signature>, String> {
    let unreadable = |why: &dyn Display| format!("it is no SPIR-V that can be read: {why}");
    if !is_whole(image) {
        return Err(unreadable(&"its last instruction is cut off"));
    }
    let module = load_bytes(image).map_err(|error| unreadable(&error))?;
    let addressing = module.memory_model.as_ref().and_then(|model| model.operands.first());
    if addressing != Some(&Operand::AddressingModel(AddressingModel::Physical64)) {
        return Err("its SPIR-V has no addresses of 64 bits (Physical64)".to_owned());
    }
    let reader = Reader::of(&module);
    module.entry_points.iter().filter_map(|entry| reader.kernel(entry).transpose()).collect()
}

/// Whether no instruction reaches beyond the end: the parser takes their lengths on trust.
fn is_whole(image: &[u8]) -> bool {
    const HEADER: usize = 20;
    let mut rest = image.get(HEADER..).unwrap_or_default();
    while let Some((first, _)) = rest.split_first_chunk() {
        let length = usize::from((u32::from_le_bytes(*first) >> 16) as u16) * 4;
        match rest.get(length..) {
            Some(behind) if length > 0 => rest = behind,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// A module, and where in it things are.
struct Reader<'a> {
    module: &'a Module,
    types: HashMap<Word, &'a Instruction>,
    /// Parameters that are pointers to a value that is passed.
    by_value: HashSet<Word>,
    /// Structures without gaps.
    packed: HashSet<Word>,
}

impl<'a> Reader<'a> {
    fn of(module: &'a Module) -> Self {
        let types = module.types_global_values.iter().filter_map(|it| Some((it.result_id?, it))).collect();
        let decorated = |wanted: &[Operand]| {
            let all = module.annotations.iter().filter(|it| it.class.opcode == Op::Decorate);
            all.filter_map(|it| match it.operands.split_first() {
                Some((Operand::IdRef(target), rest)) if rest == wanted => Some(*target),
                _ => None,
            })
            .collect()
        };
        let by_value = decorated(&[
            Operand::Decoration(Decoration::FuncParamAttr),
            Operand::FunctionParameterAttribute(FunctionParameterAttribute::ByVal),
        ]);
        let packed = decorated(&[Operand::Decoration(Decoration::CPacked)]);
        Self { module, types, by_value, packed }
    }

    /// The kernel of an entry point, unless that is one of another kind.
    fn kernel(&self, entry: &Instruction) -> Result<Option<Signature>, String> {
        let [Operand::ExecutionModel(ExecutionModel::Kernel), Operand::IdRef(id), Operand::LiteralString(name), ..] =
            entry.operands.as_slice()
        else {
            return Ok(None);
        };
        let of = |why: String| format!("kernel {name}: {why}");
        let is_it = |it: &&rspirv::dr::Function| it.def.as_ref().and_then(|def| def.result_id) == Some(*id);
        let function = self
            .module
            .functions
            .iter()
            .find(is_it)
            .ok_or_else(|| of("its function is not in the module".to_owned()))?;
        let parameters =
            function.parameters.iter().enumerate().map(|(index, parameter)| {
                self.parameter(parameter).map_err(|why| of(format!("argument {index} {why}")))
            });
        let parameters = parameters.collect::<Result<Vec<_>, _>>()?;
        let bytes: usize = parameters.iter().map(|parameter| parameter.size().next_multiple_of(16)).sum();
        if parameters.len() > MAX_ARGUMENTS || bytes > MAX_ARGUMENTS_SIZE {
            let most = format!("more than {MAX_ARGUMENTS}, or take more than {MAX_ARGUMENTS_SIZE} bytes");
            return Err(of(format!("its arguments are {most}")));
        }
        let (mut group_size, mut subgroup_size) = (None, None);
        for mode in &self.module.execution_modes {
            match mode.operands.as_slice() {
                [
                    Operand::IdRef(of),
                    Operand::ExecutionMode(ExecutionMode::LocalSize),
                    Operand::LiteralBit32(x),
                    Operand::LiteralBit32(y),
                    Operand::LiteralBit32(z),
                ] if of == id => group_size = Some([*x, *y, *z]),
                [
                    Operand::IdRef(of),
                    Operand::ExecutionMode(ExecutionMode::SubgroupSize),
                    Operand::LiteralBit32(size),
                ] if of == id => {
                    subgroup_size = Some(*size);
                }
                _ => {}
            }
        }
        let name = CString::new(name.as_str()).map_err(|_| of("its name has a zero byte".to_owned()))?;
        Ok(Some(Signature { name, parameters, group_size, subgroup_size }))
    }

    fn parameter(&self, parameter: &Instruction) -> Result<Parameter, String> {
        let (Some(id), Some(kind)) = (parameter.result_id, parameter.result_type) else {
            return Err("has no type".to_owned());
        };
        let Some((class, target)) = self.pointer(kind) else {
            return Ok(Parameter::Value(self.layout(kind)?.0));
        };
        match class {
            StorageClass::CrossWorkgroup | StorageClass::UniformConstant => Ok(Parameter::Pointer),
            StorageClass::Workgroup => Ok(Parameter::Local),
            StorageClass::Function if self.by_value.contains(&id) => Ok(Parameter::Value(self.layout(target)?.0)),
            other => Err(format!("is a pointer to {other:?} memory, which no kernel can be given")),
        }
    }

    /// Storage class and target of a pointer type.
    fn pointer(&self, id: Word) -> Option<(StorageClass, Word)> {
        let it = self.types.get(&id).filter(|it| it.class.opcode == Op::TypePointer)?;
        match it.operands.as_slice() {
            [Operand::StorageClass(class), Operand::IdRef(target)] => Some((*class, *target)),
            _ => None,
        }
    }

    /// Size and alignment of a type in memory.
    fn layout(&self, id: Word) -> Result<(usize, usize), String> {
        let it = self.types.get(&id).ok_or_else(|| format!("has the undeclared type %{id}"))?;
        match (it.class.opcode, it.operands.as_slice()) {
            (Op::TypeInt | Op::TypeFloat, [Operand::LiteralBit32(bits), ..]) => {
                let size = (*bits as usize).div_ceil(8);
                Ok((size, size))
            }
            (Op::TypePointer, _) => Ok((8, 8)),
            (Op::TypeVector, [Operand::IdRef(element), Operand::LiteralBit32(count)]) => {
                // Three elements take the room of four.
                let size = self.layout(*element)?.0 * (*count as usize).next_power_of_two();
                Ok((size, size))
            }
            (Op::TypeArray, [Operand::IdRef(element), Operand::IdRef(count)]) => {
                let (size, alignment) = self.layout(*element)?;
                match size.checked_mul(self.constant(*count)?) {
                    Some(total) if total <= MAX_ARGUMENTS_SIZE => Ok((total, alignment)),
                    _ => Err(format!("has an array of more than {MAX_ARGUMENTS_SIZE} bytes")),
                }
            }
            (Op::TypeStruct, members) => self.structure(members, self.packed.contains(&id)),
            (opcode, _) => Err(format!("has a type that no kernel can be given by value (Op{opcode:?})")),
        }
    }

    fn structure(&self, members: &[Operand], packed: bool) -> Result<(usize, usize), String> {
        let (mut end, mut most) = (0usize, 1usize);
        for member in members {
            let Operand::IdRef(member) = member else { return Err("has a broken structure type".to_owned()) };
            let (size, alignment) = self.layout(*member)?;
            let alignment = if packed { 1 } else { alignment };
            end = end.next_multiple_of(alignment) + size;
            most = most.max(alignment);
        }
        Ok((end.next_multiple_of(most), most))
    }

    fn constant(&self, id: Word) -> Result<usize, String> {
        match self.types.get(&id).map(|it| (it.class.opcode, it.operands.as_slice())) {
            Some((Op::Constant, [Operand::LiteralBit32(value)])) => Ok(*value as usize),
            Some((Op::Constant, [Operand::LiteralBit64(value)])) => Ok(*value as usize),
            _ => Err("has an array whose length is not a constant".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &[u8] = include_bytes!("../../tests/opencl/kernels.spv");

    #[test]
    fn argument_kinds_are_read() {
        let kernels = kernels(IMAGE).expect("the committed module can be read");
        let find = |name: &str| {
            kernels
                .iter()
                .find(|kernel| kernel.name.to_bytes() == name.as_bytes())
                .expect("the kernel is in the module")
        };
        use Parameter::{Local, Pointer, Value};
        assert_eq!(find("add").parameters, [Pointer, Pointer, Pointer, Value(4)]);
        assert_eq!(find("reverse").parameters, [Pointer, Local, Pointer]);
        let sizes = [1, 2, 4, 8, 2, 4, 8, 8, 16, 24].map(Value);
        assert_eq!(find("scalars").parameters[0], Pointer);
        assert_eq!(find("scalars").parameters[1..], sizes);
        assert_eq!((find("fours").group_size, find("fours").subgroup_size), (Some([4, 1, 1]), None));
        assert_eq!((find("sixteen").group_size, find("sixteen").subgroup_size), (None, Some(16)));
        assert!(find("nothing").parameters.is_empty());
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(kernels(b"").is_err());
        for length in (0..IMAGE.len()).step_by(101) {
            assert!(kernels(&IMAGE[..length]).is_err());
        }
        // OpMemoryModel with 32-bit addresses.
        let mut words = [0x0723_0203u32, 0x0001_0200, 0, 10, 0, 3 << 16 | 14, 1, 2];
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        assert!(kernels(&bytes(&words)).is_err_and(|why| why.contains("64 bits")));
        words[6] = 2;
        assert_eq!(kernels(&bytes(&words)), Ok(Vec::new()));
    }
}
