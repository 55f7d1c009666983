//! An interpreter of the few PTX instructions that kvwire's kernels use: enough to see whether they do what they should.

use std::collections::BTreeMap;

use crate::heap::holds_word;
use crate::{Code, LAUNCH_FAILED};

/// One kernel.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    parameters: Vec<String>,
    registers: BTreeMap<String, usize>,
    labels: BTreeMap<String, usize>,
    code: Vec<Instruction>,
}

#[derive(Debug, Clone, Copy)]
enum Value {
    Register(usize),
    Constant(u64),
    ThreadInBlock,
    ThreadsOfBlock,
    Block,
    Blocks,
}

#[derive(Debug, Clone, Copy)]
enum Binary {
    Add,
    MulLow,
    Shr,
    Shl,
    Xor,
    AtLeast,
    Equal,
}

#[derive(Debug)]
enum Instruction {
    Parameter { to: usize, index: usize },
    Move { to: usize, value: Value },
    Binary { kind: Binary, to: usize, a: Value, b: Value },
    Load { to: usize, base: Value, offset: u64 },
    Store { base: Value, offset: u64, value: Value },
    Accumulate { base: Value, offset: u64, value: Value },
    Branch { when: Option<usize>, label: String, to: usize },
    Return,
}

/// Where a thread is.
struct Place {
    thread: u32,
    threads: u32,
    block: u32,
    blocks: u32,
}

/// Reads a module.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Kernel>, String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    for directive in [".version", ".target", ".address_size"] {
        if !code.contains(directive) {
            return Err(format!("no {directive}"));
        }
    }
    let mut kernels = BTreeMap::new();
    for part in code.split(".visible .entry ").skip(1) {
        let (head, body) = part.split_once('{').ok_or("a kernel without a body")?;
        let (name, parameters) = head.split_once('(').ok_or("a kernel without parameters")?;
        let body = body.split_once('}').ok_or("a body without an end")?.0;
        kernels.insert(name.trim().to_owned(), Kernel::parse(parameters, body)?);
    }
    Ok(kernels)
}

impl Kernel {
    fn parse(parameters: &str, body: &str) -> Result<Self, String> {
        let mut kernel = Self::default();
        for parameter in parameters.trim().trim_end_matches(')').split(',') {
            let name =
                parameter.trim().strip_prefix(".param .u64 ").ok_or_else(|| format!("`{parameter}`"))?;
            kernel.parameters.push(name.trim().to_owned());
        }
        let mut rest = body.replace(':', ":;");
        rest = rest.replace('\n', " ");
        for statement in rest.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            if let Some(label) = statement.strip_suffix(':') {
                kernel.labels.insert(label.to_owned(), kernel.code.len());
            } else if let Some(declared) = statement.strip_prefix(".reg ") {
                let (_, names) = declared.split_once(' ').ok_or("a declaration without names")?;
                for name in names.split(',') {
                    let number = kernel.registers.len();
                    kernel.registers.insert(name.trim().to_owned(), number);
                }
            } else {
                let instruction = kernel.instruction(statement)?;
                kernel.code.push(instruction);
            }
        }
        for instruction in &mut kernel.code {
            if let Instruction::Branch { label, to, .. } = instruction {
                *to = *kernel.labels.get(label).ok_or_else(|| format!("no label `{label}`"))?;
            }
        }
        Ok(kernel)
    }

    fn instruction(&self, statement: &str) -> Result<Instruction, String> {
        let (when, statement) = match statement.strip_prefix('@') {
            Some(guarded) => {
                let (predicate, rest) = guarded.split_once(' ').ok_or("a guard alone")?;
                (Some(self.register(predicate)?), rest.trim())
            }
            None => (None, statement),
        };
        let (name, operands) = statement.split_once(' ').unwrap_or((statement, ""));
        let operands: Vec<&str> = operands.split(',').map(str::trim).filter(|o| !o.is_empty()).collect();
        if when.is_some() && name != "bra" {
            return Err(format!("`{statement}`: only branches are guarded here"));
        }
        let at =
            |index: usize| operands.get(index).copied().ok_or_else(|| format!("`{statement}` is too short"));
        let binary = |kind| {
            Ok::<_, String>(Instruction::Binary {
                kind,
                to: self.register(at(0)?)?,
                a: self.value(at(1)?)?,
                b: self.value(at(2)?)?,
            })
        };
        Ok(match name {
            "ld.param.u64" => {
                let wanted = at(1)?.trim_matches(['[', ']']);
                let index =
                    self.parameters.iter().position(|p| p == wanted).ok_or_else(|| statement.to_owned())?;
                Instruction::Parameter { to: self.register(at(0)?)?, index }
            }
            "mov.u32" | "mov.u64" | "cvt.u64.u32" => {
                Instruction::Move { to: self.register(at(0)?)?, value: self.value(at(1)?)? }
            }
            "add.u64" => binary(Binary::Add)?,
            "mul.lo.u64" => binary(Binary::MulLow)?,
            "shr.u64" => binary(Binary::Shr)?,
            "shl.b64" => binary(Binary::Shl)?,
            "xor.b64" => binary(Binary::Xor)?,
            "setp.ge.u64" => binary(Binary::AtLeast)?,
            "setp.eq.u64" => binary(Binary::Equal)?,
            "ld.global.u64" | "ld.volatile.global.u64" => {
                let (base, offset) = self.address(at(1)?)?;
                Instruction::Load { to: self.register(at(0)?)?, base, offset }
            }
            "st.global.u64" => {
                let (base, offset) = self.address(at(0)?)?;
                Instruction::Store { base, offset, value: self.value(at(1)?)? }
            }
            "red.global.add.u64" => {
                let (base, offset) = self.address(at(0)?)?;
                Instruction::Accumulate { base, offset, value: self.value(at(1)?)? }
            }
            "bra" => Instruction::Branch { when, label: at(0)?.to_owned(), to: 0 },
            "ret" => Instruction::Return,
            _ => return Err(format!("`{name}` is not one of the instructions known here")),
        })
    }

    fn register(&self, name: &str) -> Result<usize, String> {
        self.registers.get(name).copied().ok_or_else(|| format!("no register `{name}`"))
    }

    fn value(&self, text: &str) -> Result<Value, String> {
        Ok(match text {
            "%tid.x" => Value::ThreadInBlock,
            "%ntid.x" => Value::ThreadsOfBlock,
            "%ctaid.x" => Value::Block,
            "%nctaid.x" => Value::Blocks,
            _ if text.starts_with('%') => Value::Register(self.register(text)?),
            _ => {
                let number = match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => text.parse(),
                };
                Value::Constant(number.map_err(|_| format!("`{text}` is not a number"))?)
            }
        })
    }

    fn address(&self, text: &str) -> Result<(Value, u64), String> {
        let inner = text.trim_matches(['[', ']']);
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        Ok((self.value(base)?, offset.parse().map_err(|_| format!("`{text}`"))?))
    }

    pub(crate) fn parameters(&self) -> usize {
        self.parameters.len()
    }

    /// Runs all threads, one after the other.
    pub(crate) fn run(&self, parameters: &[u64], blocks: u32, threads: u32) -> Result<(), Code> {
        for block in 0..blocks {
            for thread in 0..threads {
                self.thread(parameters, &Place { thread, threads, block, blocks })?;
            }
        }
        Ok(())
    }

    fn thread(&self, parameters: &[u64], place: &Place) -> Result<(), Code> {
        let mut registers = vec![0_u64; self.registers.len()];
        let mut next = 0;
        while let Some(instruction) = self.code.get(next) {
            next += 1;
            let value = |value: Value| match value {
                Value::Register(number) => registers[number],
                Value::Constant(number) => number,
                Value::ThreadInBlock => u64::from(place.thread),
                Value::ThreadsOfBlock => u64::from(place.threads),
                Value::Block => u64::from(place.block),
                Value::Blocks => u64::from(place.blocks),
            };
            match instruction {
                Instruction::Parameter { to, index } => registers[*to] = parameters[*index],
                Instruction::Move { to, value: from } => registers[*to] = value(*from),
                Instruction::Binary { kind, to, a, b } => {
                    let (a, b) = (value(*a), value(*b));
                    registers[*to] = match kind {
                        Binary::Add => a.wrapping_add(b),
                        Binary::MulLow => a.wrapping_mul(b),
                        Binary::Shr => a.checked_shr(b as u32).unwrap_or(0),
                        Binary::Shl => a.checked_shl(b as u32).unwrap_or(0),
                        Binary::Xor => a ^ b,
                        Binary::AtLeast => u64::from(a >= b),
                        Binary::Equal => u64::from(a == b),
                    };
                }
                Instruction::Load { to, base, offset } => {
                    let at = pointer(value(*base).wrapping_add(*offset))?;
                    // SAFETY: eight bytes of GPU memory, as just looked up; others may write there at any time.
                    registers[*to] = unsafe { at.read_volatile() };
                }
                Instruction::Store { base, offset, value: from } => {
                    // SAFETY: as above.
                    unsafe { pointer(value(*base).wrapping_add(*offset))?.write_volatile(value(*from)) };
                }
                Instruction::Accumulate { base, offset, value: from } => {
                    let at = pointer(value(*base).wrapping_add(*offset))?;
                    // SAFETY: as above; threads run one after the other.
                    unsafe { at.write_volatile(at.read_volatile().wrapping_add(value(*from))) };
                }
                Instruction::Branch { when, to, .. } => {
                    if when.is_none_or(|predicate| registers[predicate] != 0) {
                        next = *to;
                    }
                }
                Instruction::Return => return Ok(()),
            }
        }
        Ok(())
    }
}

/// A word of GPU memory. An address outside of all allocations, or between two words, kills the kernel, as on a GPU.
fn pointer(address: u64) -> Result<*mut u64, Code> {
    if !address.is_multiple_of(8) || !holds_word(address) {
        return Err(LAUNCH_FAILED);
    }
    Ok(std::ptr::with_exposed_provenance_mut(address as usize))
}
