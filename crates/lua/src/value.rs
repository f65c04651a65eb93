//! Values passed to and from scripts.

use std::borrow::Cow;

use mlua::{IntoLua, Lua, MultiValue, Table};

/// A table of values under consecutive indices.
fn indexed(lua: &Lua, first: i64, list: Vec<Value<'_>>) -> mlua::Result<Table> {
    let t = lua.create_table()?;
    for (v, i) in list.into_iter().zip(first..) {
        t.raw_set(i, v.into_lua(lua)?)?;
    }
    Ok(t)
}

/// A value for a script, or from one.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Nil.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any number.
    Number(f64),
    /// Text or bytes.
    Bytes(Cow<'a, [u8]>),
    /// A sequence, indexed from 1.
    List(Vec<Value<'a>>),
    /// A sequence, indexed from 0.
    ListFromZero(Vec<Value<'a>>),
    /// A table with string keys.
    Table(Vec<(Cow<'a, [u8]>, Value<'a>)>),
    /// Several values, as a function returns them.
    Many(Vec<Value<'a>>),
}

impl<'a> Value<'a> {
    /// Text.
    pub fn text(s: &'a str) -> Self {
        Value::Bytes(Cow::Borrowed(s.as_bytes()))
    }

    /// Owned text.
    pub fn owned(s: impl Into<String>) -> Self {
        Value::Bytes(Cow::Owned(s.into().into_bytes()))
    }

    /// Bytes.
    pub fn bytes(b: &'a [u8]) -> Self {
        Value::Bytes(Cow::Borrowed(b))
    }

    /// Its bytes, if it is a string.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Value::Bytes(b) = self { Some(b) } else { None }
    }

    /// Its value as an integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            Value::Number(f) if f.fract() == 0.0 && f.abs() < 9e15 => Some(*f as i64),
            _ => None,
        }
    }

    /// Converts to a Lua value; of several values, the first.
    pub(crate) fn into_lua(self, lua: &Lua) -> mlua::Result<mlua::Value> {
        Ok(match self {
            Value::Nil => mlua::Value::Nil,
            Value::Bool(b) => mlua::Value::Boolean(b),
            Value::Int(n) => mlua::Value::Integer(n),
            Value::Number(n) => mlua::Value::Number(n),
            Value::Bytes(b) => lua.create_string(&b)?.into_lua(lua)?,
            Value::List(list) => mlua::Value::Table(indexed(lua, 1, list)?),
            Value::ListFromZero(list) => mlua::Value::Table(indexed(lua, 0, list)?),
            Value::Table(rows) => {
                let t = lua.create_table()?;
                for (k, v) in rows {
                    t.raw_set(lua.create_string(&k)?, v.into_lua(lua)?)?;
                }
                mlua::Value::Table(t)
            }
            Value::Many(list) => match list.into_iter().next() {
                Some(v) => v.into_lua(lua)?,
                None => mlua::Value::Nil,
            },
        })
    }

    /// Converts to the return values of a Lua function.
    pub(crate) fn into_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        match self {
            Value::Many(list) => list.into_iter().map(|v| v.into_lua(lua)).collect(),
            one => Ok(MultiValue::from_iter([one.into_lua(lua)?])),
        }
    }

    /// Converts from a Lua value. Values other than text, numbers and booleans become nil.
    pub(crate) fn from_lua(v: &mlua::Value) -> Value<'static> {
        match v {
            mlua::Value::Boolean(b) => Value::Bool(*b),
            mlua::Value::Integer(n) => Value::Int(*n),
            mlua::Value::Number(n) => Value::Number(*n),
            mlua::Value::String(s) => Value::Bytes(Cow::Owned(s.as_bytes().to_vec())),
            _ => Value::Nil,
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(b: bool) -> Self {
        Value::Bool(b)
    }
}

impl From<u64> for Value<'_> {
    fn from(n: u64) -> Self {
        match i64::try_from(n) {
            Ok(n) => Value::Int(n),
            // As in Lua, a number beyond the integers is a float.
            Err(_) => Value::Number(n as f64),
        }
    }
}

impl From<u32> for Value<'_> {
    fn from(n: u32) -> Self {
        Value::Int(n.into())
    }
}

impl From<u16> for Value<'_> {
    fn from(n: u16) -> Self {
        Value::Int(n.into())
    }
}

impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Value::Int(n)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::Nil, Into::into)
    }
}
