//! Kernels whose arguments are one structure: a SYCL runtime takes hundreds of instructions and an allocation for each
//! argument of a launch, whatever its size (docs/adr/0013-one-argument-on-queues.md).
//!
//! The delivered SPIR-V is rewritten: a kernel's parameters become the members of one, each a 64-bit word in the order of the
//! arguments, and are made of it again where the kernel begins. Nothing else of the code changes.

use ccl_core::{Error, Result};
use std::collections::HashMap;

const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;

const OP_NAME: u32 = 5;
const OP_STRING: u32 = 7;
const OP_ENTRY_POINT: u32 = 15;
const OP_TYPE_VOID: u32 = 19;
const OP_TYPE_INT: u32 = 21;
const OP_TYPE_FLOAT: u32 = 22;
const OP_TYPE_STRUCT: u32 = 30;
const OP_TYPE_POINTER: u32 = 32;
const OP_TYPE_FUNCTION: u32 = 33;
const OP_CONSTANT: u32 = 43;
const OP_FUNCTION: u32 = 54;
const OP_FUNCTION_PARAMETER: u32 = 55;
const OP_FUNCTION_END: u32 = 56;
const OP_VARIABLE: u32 = 59;
const OP_LOAD: u32 = 61;
const OP_IN_BOUNDS_ACCESS_CHAIN: u32 = 66;
const OP_DECORATE: u32 = 71;
const OP_U_CONVERT: u32 = 113;
const OP_CONVERT_U_TO_PTR: u32 = 120;
const OP_BITCAST: u32 = 124;
const OP_LABEL: u32 = 248;

const STORAGE_FUNCTION: u32 = 7;
const DECORATION_FUNC_PARAM_ATTR: u32 = 38;
const DECORATION_LINKAGE: u32 = 41;
const DECORATION_ALIGNMENT: u32 = 44;
const ATTRIBUTE_BY_VALUE: u32 = 2;
const ACCESS_ALIGNED: u32 = 2;
const WORD: u32 = 8;

/// What the translator says of a kernel's parameters for whoever asks by name.
const PARAMETER_TYPES: &[u8] = b"kernel_arg_type";

/// What a parameter is.
#[derive(Clone, Copy)]
enum Type {
    Int(u32),
    Float(u32),
    Pointer,
}

/// A kernel, by the numbers of its words.
struct Kernel {
    function: usize,
    parameters: Vec<usize>,
    /// Behind the variables of its first block.
    body: usize,
}

struct Instruction<'a> {
    at: usize,
    opcode: u32,
    words: &'a [u32],
}

fn malformed(what: &str) -> Error {
    Error::Internal(format!("SPIR-V whose arguments are to be one: {what}"))
}

fn instructions(words: &[u32]) -> Result<Vec<Instruction<'_>>> {
    let mut at = HEADER;
    let mut all = Vec::new();
    while at < words.len() {
        let (count, opcode) = ((words[at] >> 16) as usize, words[at] & 0xFFFF);
        let words = words.get(at..at + count).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| malformed("an instruction ends behind the module"))?;
        all.push(Instruction { at, opcode, words });
        at += count;
    }
    Ok(all)
}

fn instruction(opcode: u32, operands: &[u32]) -> Vec<u32> {
    let count = operands.len() as u32 + 1;
    [&[count << 16 | opcode], operands].concat()
}

/// A text's bytes, with its end.
fn text(words: &[u32]) -> Vec<u8> {
    let mut text = bytes(words);
    let end = text.iter().position(|byte| *byte == 0).map_or(text.len(), |end| end + 1);
    text.truncate(end);
    text
}

/// The kernels among the functions.
fn kernels(all: &[Instruction<'_>]) -> Result<Vec<Kernel>> {
    let entries = all.iter().filter(|one| one.opcode == OP_ENTRY_POINT).map(|one| one.words[2]).collect::<Vec<_>>();
    let mut kernels = Vec::new();
    let mut rest = all.iter().enumerate();
    while let Some((number, one)) = rest.next() {
        if one.opcode != OP_FUNCTION || !entries.contains(&one.words[2]) {
            continue;
        }
        let mut parameters = Vec::new();
        let body = loop {
            let (number, one) = rest.next().ok_or_else(|| malformed("a kernel has no end"))?;
            match one.opcode {
                OP_FUNCTION_PARAMETER => parameters.push(number),
                OP_LABEL | OP_VARIABLE => {}
                OP_FUNCTION_END => return Err(malformed("a kernel has no body")),
                _ => break number,
            }
        };
        kernels.push(Kernel { function: number, parameters, body });
    }
    if kernels.len() != entries.len() {
        return Err(malformed("an entry point is no function"));
    }
    Ok(kernels)
}

/// The module with one argument for each kernel.
pub(crate) fn packed(image: &[u8]) -> Result<Vec<u8>> {
    let (chunks, rest) = image.as_chunks::<4>();
    let words: Vec<u32> = chunks.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect();
    if words.len() < HEADER || words[0] != MAGIC || !rest.is_empty() {
        return Err(malformed("it has no header"));
    }
    let all = instructions(&words)?;
    let kernels = kernels(&all)?;
    let mut types = HashMap::new();
    let mut void = None;
    for one in &all {
        match one.opcode {
            OP_TYPE_VOID => void = Some(one.words[1]),
            OP_TYPE_INT => drop(types.insert(one.words[1], Type::Int(one.words[2]))),
            OP_TYPE_FLOAT => drop(types.insert(one.words[1], Type::Float(one.words[2]))),
            OP_TYPE_POINTER => drop(types.insert(one.words[1], Type::Pointer)),
            _ => {}
        }
    }
    let void = void.ok_or_else(|| malformed("no function returns nothing"))?;
    let int =
        |bits| types.iter().find(|(_, known)| matches!(known, Type::Int(width) if *width == bits)).map(|(id, _)| *id);
    let (Some(word), Some(half)) = (int(64), int(32)) else {
        return Err(malformed("it has no integers of 32 and 64 bits"));
    };

    let mut bound = words[3];
    let mut fresh = || {
        bound += 1;
        bound - 1
    };
    let most = kernels.iter().map(|kernel| kernel.parameters.len()).max().unwrap_or(0);
    // Declarations of what all of them need; each number of arguments has a structure.
    let mut declared = Vec::new();
    let to_word = fresh();
    declared.extend(instruction(OP_TYPE_POINTER, &[to_word, STORAGE_FUNCTION, word]));
    let places: Vec<u32> = (0..most as u32)
        .map(|place| {
            let id = fresh();
            declared.extend(instruction(OP_CONSTANT, &[half, id, place]));
            id
        })
        .collect();
    let mut structures = HashMap::new();
    let mut decorations = Vec::new();
    // By the numbers of instructions: what stands in their place, and what goes before them.
    let mut replaced: HashMap<usize, Vec<u32>> = HashMap::new();
    let mut before: HashMap<usize, Vec<u32>> = HashMap::new();
    let mut parameters = Vec::new();
    for kernel in &kernels {
        let Some(first) = kernel.parameters.first() else { continue };
        let (to_structure, function_type) = *structures.entry(kernel.parameters.len()).or_insert_with(|| {
            let [structure, pointer, function] = [fresh(), fresh(), fresh()];
            let members = vec![word; kernel.parameters.len()];
            declared.extend(instruction(OP_TYPE_STRUCT, &[&[structure][..], &members].concat()));
            declared.extend(instruction(OP_TYPE_POINTER, &[pointer, STORAGE_FUNCTION, structure]));
            declared.extend(instruction(OP_TYPE_FUNCTION, &[function, void, pointer]));
            (pointer, function)
        });
        let parameter = fresh();
        let attribute = [parameter, DECORATION_FUNC_PARAM_ATTR, ATTRIBUTE_BY_VALUE];
        decorations.extend(instruction(OP_DECORATE, &attribute));
        decorations.extend(instruction(OP_DECORATE, &[parameter, DECORATION_ALIGNMENT, WORD]));
        let function = &all[kernel.function];
        let head = [function.words[1], function.words[2], function.words[3], function_type];
        replaced.insert(kernel.function, instruction(OP_FUNCTION, &head));
        let code = before.entry(kernel.body).or_default();
        for (&number, place) in kernel.parameters.iter().zip(&places) {
            let (of_type, id) = (all[number].words[1], all[number].words[2]);
            parameters.push(id);
            replaced.insert(number, Vec::new());
            let known = types.get(&of_type).ok_or_else(|| malformed("a parameter is no number and no pointer"))?;
            let (at, loaded) = (fresh(), if matches!(known, Type::Int(64)) { id } else { fresh() });
            code.extend(instruction(OP_IN_BOUNDS_ACCESS_CHAIN, &[to_word, at, parameter, *place]));
            code.extend(instruction(OP_LOAD, &[word, loaded, at, ACCESS_ALIGNED, WORD]));
            match known {
                Type::Int(64) => {}
                Type::Int(_) => code.extend(instruction(OP_U_CONVERT, &[of_type, id, loaded])),
                Type::Pointer => code.extend(instruction(OP_CONVERT_U_TO_PTR, &[of_type, id, loaded])),
                Type::Float(32) => {
                    let bits = fresh();
                    code.extend(instruction(OP_U_CONVERT, &[half, bits, loaded]));
                    code.extend(instruction(OP_BITCAST, &[of_type, id, bits]));
                }
                Type::Float(_) => return Err(malformed("a parameter is a number of an unknown kind")),
            }
        }
        replaced.insert(*first, instruction(OP_FUNCTION_PARAMETER, &[to_structure, parameter]));
    }

    // A translator takes a function of a kernel's name for the kernel: what the kernel calls must have another one, or none.
    let names: Vec<_> =
        all.iter().filter(|one| one.opcode == OP_ENTRY_POINT).map(|one| text(&one.words[3..])).collect();
    let is_dropped = |one: &Instruction<'_>| match one.opcode {
        OP_DECORATE if parameters.contains(&one.words[1]) => true,
        OP_DECORATE if one.words[2] == DECORATION_LINKAGE => names.contains(&text(&one.words[3..])),
        OP_NAME => names.contains(&text(&one.words[2..])),
        OP_STRING => text(&one.words[2..]).starts_with(PARAMETER_TYPES),
        _ => false,
    };
    let is_type = |one: &Instruction<'_>| (OP_TYPE_VOID..=OP_TYPE_FUNCTION).contains(&one.opcode);
    let first_type = all.iter().position(is_type).ok_or_else(|| malformed("it has no types"))?;
    let first_function = all.iter().position(|one| one.opcode == OP_FUNCTION);
    let first_function = first_function.ok_or_else(|| malformed("it has no functions"))?;
    let mut made = words[..HEADER].to_vec();
    made[3] = bound;
    for (number, one) in all.iter().enumerate() {
        if number == first_type {
            made.append(&mut decorations);
        }
        if number == first_function {
            made.append(&mut declared);
        }
        if is_dropped(one) {
            continue;
        }
        made.extend(before.remove(&number).unwrap_or_default());
        match replaced.get(&number) {
            Some(instead) => made.extend(instead),
            None => made.extend(&words[one.at..one.at + one.words.len()]),
        }
    }
    Ok(bytes(&made))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Family;
    use crate::module::delivered;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn parameters(image: &[u8]) -> Vec<usize> {
        let words: Vec<u32> = image.as_chunks::<4>().0.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect();
        let all = instructions(&words).expect("SPIR-V");
        kernels(&all).expect("kernels").iter().map(|kernel| kernel.parameters.len()).collect()
    }

    #[test]
    fn every_family_has_one_argument_a_kernel_and_is_valid() {
        let mut validated = 0;
        for family in Family::ALL.into_iter().filter(|family| !delivered(*family).is_empty()) {
            let (name, image) = (family.name(), delivered(family));
            let kernels = family.kernels();
            let before = parameters(image);
            assert!(before.iter().all(|count| *count == kernels[0].arg_sizes.len() || name == "bulk"), "{name}");
            let made = packed(image).expect(&name);
            assert_eq!(parameters(&made), vec![1; kernels.len()], "{name}");
            // Where Khronos's validator is there.
            let child =
                Command::new("spirv-val").args(["--target-env", "opencl2.1", "-"]).stdin(Stdio::piped()).spawn();
            let Ok(mut child) = child else { continue };
            child.stdin.take().expect("a pipe").write_all(&made).expect("written");
            assert!(child.wait().expect("an answer").success(), "{name}");
            validated += 1;
        }
        eprintln!("{validated} modules validated");
        // CI has the validator, so there its absence is a failure.
        assert!(validated > 0 || std::env::var_os("CI_PROGRAMS").is_none(), "spirv-val is not there");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let image = delivered(Family::Probe);
        let too_long = [image, &(5u32 << 16 | OP_LABEL).to_le_bytes()].concat();
        for broken in [&image[..3], &image[4..], &image[..HEADER * 4], &too_long, &[0; 20]] {
            packed(broken).expect_err("no module");
        }
    }
}
