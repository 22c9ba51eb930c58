//! The library `bit`: operations on 32 bits.

use super::host::{Checked, argument, number};
use mlua::{MultiValue, Value};

/// Adding it leaves an integer's last 32 bits at the end of the sum's.
const SHIFT: f64 = 6_755_399_441_055_744.0;

fn bits(values: &MultiValue, at: usize, name: &str) -> Checked<u32> {
    Ok((number(values, at, name)? + SHIFT).to_bits() as u32)
}

fn signed(bits: u32) -> Value {
    Value::Number(f64::from(bits as i32))
}

/// Folds all arguments.
pub(super) fn fold(
    name: &'static str,
    operation: impl Fn(u32, u32) -> u32,
) -> impl Fn(&MultiValue) -> Checked<Value> {
    move |values| {
        let mut result = bits(values, 1, name)?;
        for at in 2..=values.len() {
            result = operation(result, bits(values, at, name)?);
        }
        Ok(signed(result))
    }
}

pub(super) fn unary(
    name: &'static str,
    operation: impl Fn(u32) -> u32,
) -> impl Fn(&MultiValue) -> Checked<Value> {
    move |values| Ok(signed(operation(bits(values, 1, name)?)))
}

/// By a number of bits, of which 5 count.
pub(super) fn shift(
    name: &'static str,
    operation: impl Fn(u32, u32) -> u32,
) -> impl Fn(&MultiValue) -> Checked<Value> {
    move |values| Ok(signed(operation(bits(values, 1, name)?, bits(values, 2, name)? & 31)))
}

pub(super) fn to_hex(values: &MultiValue) -> Checked<String> {
    let number = bits(values, 1, "tohex")?;
    let digits = match argument(values, 2) {
        None => 8,
        Some(_) => bits(values, 2, "tohex")? as i32,
    };
    let kept = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    Ok(text[8 - kept..].to_owned())
}
