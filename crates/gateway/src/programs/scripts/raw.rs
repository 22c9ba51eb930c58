//! What every run of a script goes through, by Lua's own interface: `redis.call`, and the call of
//! the script itself. mlua would make a handle of each value that passes, and guard each step by
//! itself.
//!
//! An error of Lua leaves these functions by `longjmp`, which drops nothing. So each of them has
//! only what needs no drop at the places where Lua may raise one.

use super::super::Budget;
use super::Call;
use super::host::{Host, TIME_IS_OVER, Word, guarded, lock};
use super::replies::Line;
use super::words::Words;
use mlua::{Function, Lua, RegistryKey, Table, Value, ffi};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

/// Where scripts find their words.
const KEYS: &str = "KEYS";
const ARGV: &str = "ARGV";

/// Places on Lua's stack that one level of a reply takes.
const PLACES: c_int = 4;

/// Runs scripts: has them find their words in KEYS and ARGV, and `handle` make a table of what they
/// raise.
#[derive(Debug)]
pub(super) struct Caller {
    /// Lua's main state.
    state: *mut ffi::lua_State,
    lua: Lua,
    globals: Table,
    call: RegistryKey,
    handle: RegistryKey,
    /// Through this place what a script returns gets to mlua, if it isn't as plain as a number.
    returned: RegistryKey,
}

// SAFETY: the state ends with `lua`, which may be sent, too, and is used through a `Caller` only,
// of which there is one.
unsafe impl Send for Caller {}

impl Caller {
    pub(super) fn new(lua: &Lua, globals: Table, handle: Function) -> mlua::Result<Caller> {
        let mut main = ptr::null_mut();
        // SAFETY: all upvalues are on the stack when the function takes them.
        let call: Function = unsafe {
            lua.exec_raw((&globals, KEYS, ARGV), |state| {
                main = state;
                ffi::lua_pushcclosure(state, call_script, 3);
            })
        }?;
        Ok(Caller {
            state: main,
            lua: lua.clone(),
            globals,
            call: lua.create_registry_value(call)?,
            handle: lua.create_registry_value(handle)?,
            returned: lua.create_registry_value(false)?,
        })
    }

    /// Runs a script, which is in the registry. True and its value, or false and a table that tells
    /// its error; if that is no table, there was no memory for one.
    ///
    /// # Errors
    ///
    /// There was no memory to return its value.
    pub(super) fn run(&self, script: &RegistryKey, call: &Call) -> mlua::Result<(bool, Value)> {
        let state = self.state;
        // SAFETY: no function of Lua runs in the main state now, so that it has room for some
        // values. What may raise an error is within the call of `call_script`; to look at a place
        // of the registry, and to change one that exists, can't fail.
        let (has_ended, value) = unsafe {
            for key in [&self.handle, &self.call] {
                ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, key.id().into());
            }
            ffi::lua_pushlightuserdata(state, ptr::from_ref(call).cast_mut().cast());
            ffi::lua_rawgeti(state, ffi::LUA_REGISTRYINDEX, script.id().into());
            let has_ended = ffi::lua_pcall(state, 2, 1, -4) == ffi::LUA_OK;
            let value = match ffi::lua_type(state, -1) {
                ffi::LUA_TNUMBER => Some(Value::Number(ffi::lua_tonumber(state, -1))),
                ffi::LUA_TBOOLEAN => Some(Value::Boolean(ffi::lua_toboolean(state, -1) != 0)),
                ffi::LUA_TTABLE => None,
                ffi::LUA_TSTRING if has_ended => None,
                _ => Some(Value::Nil),
            };
            let place = self.returned.id().into();
            if value.is_none() {
                ffi::lua_pushvalue(state, -1);
                ffi::lua_rawseti(state, ffi::LUA_REGISTRYINDEX, place);
            }
            ffi::lua_pop(state, 2);
            (has_ended, value)
        };
        if call.is_large() {
            for name in [KEYS, ARGV] {
                self.globals.raw_set(name, Value::Nil)?;
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.take_returned()?,
        };
        Ok((has_ended, value))
    }

    fn take_returned(&self) -> mlua::Result<Value> {
        let value = self.lua.registry_value(&self.returned)?;
        // SAFETY: as above.
        unsafe {
            ffi::lua_pushboolean(self.state, 0);
            ffi::lua_rawseti(self.state, ffi::LUA_REGISTRYINDEX, self.returned.id().into());
        }
        Ok(value)
    }
}

/// Calls a script with what is in a `Call`.
unsafe extern "C-unwind" fn call_script(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls it with a state of its own, and with the upvalues of `Caller::new`;
    // `run` has put its call and the script on the stack. Nothing on this stack needs a drop.
    unsafe {
        let call = &*ffi::lua_touserdata(state, 1).cast::<Call>();
        for (name, words) in [(2, &call.keys), (3, &call.arguments)] {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(name));
            push_words(state, words);
            ffi::lua_rawset(state, ffi::lua_upvalueindex(1));
        }
        ffi::lua_call(state, 0, 1);
        1
    }
}

/// Leaves a table of words on the stack.
unsafe fn push_words(state: *mut ffi::lua_State, words: &Words) {
    // SAFETY: there is room on the stack; the table is below the word that it takes.
    unsafe {
        ffi::luaL_checkstack(state, PLACES, ptr::null());
        ffi::lua_createtable(state, words.count() as c_int, 0);
        for (at, word) in (1..).zip(words.iter()) {
            ffi::lua_pushlstring_(state, word.as_ptr().cast(), word.len());
            ffi::lua_rawseti(state, -2, at);
        }
    }
}

/// `redis.call`, which raises what is answered with an error, or `redis.pcall`, which returns it.
///
/// # Safety
///
/// The state must not outlive the host.
pub(super) unsafe fn command(
    lua: &Lua,
    host: &Arc<Mutex<Host>>,
    raises: bool,
) -> mlua::Result<Function> {
    let host = Arc::as_ptr(host).cast_mut().cast::<c_void>();
    // SAFETY: both upvalues are on the stack when the function takes them.
    unsafe {
        lua.exec_raw((), |state| {
            ffi::lua_pushlightuserdata(state, host);
            ffi::lua_pushboolean(state, c_int::from(raises));
            ffi::lua_pushcclosure(state, call_command, 2);
        })
    }
}

/// Has the host execute a command; its reply is what is returned.
unsafe extern "C-unwind" fn call_command(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls it with a state of its own, and with the upvalues of `command`, of which
    // the host is alive. What is on this stack when Lua raises an error needs no drop: the reply is
    // the host's, which nothing reaches before this function ends.
    unsafe {
        let host = ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Mutex<Host>>();
        let raises = ffi::lua_toboolean(state, ffi::lua_upvalueindex(2)) != 0;
        let Some(reply) = executed(state, &*host) else {
            return ffi::luaL_error(state, TIME_IS_OVER.as_ptr());
        };
        // The words aren't needed any more: a reply always has room.
        ffi::lua_settop(state, 0);
        let is_error = push_reply(state, &*reply, &mut 0);
        if is_error && raises {
            ffi::lua_error(state);
        }
        1
    }
}

/// The reply to the command whose words are on the stack; `None`: the script may not go on. No
/// error of Lua is raised in here.
unsafe fn executed(state: *mut ffi::lua_State, host: &Mutex<Host>) -> Option<*const [u8]> {
    let execute = || {
        let mut host = lock(host);
        // SAFETY: the words stay on the stack until the command has been executed.
        let words = unsafe { words(state) };
        host.may_go_on(Budget::check).then(|| ptr::from_ref(host.call(words)))
    };
    // Nothing may unwind through Lua's own functions.
    guarded(host, execute)?
}

/// The words on the stack. Each of them can be used as long as it is there.
unsafe fn words<'a>(state: *mut ffi::lua_State) -> impl Iterator<Item = Word<'a>> {
    // SAFETY: what the places have is looked at, not converted, so none of the calls can fail.
    let word = move |at| unsafe {
        match ffi::lua_type(state, at) {
            ffi::LUA_TSTRING => {
                let mut length = 0;
                let text = ffi::lua_tolstring(state, at, &mut length);
                Word::Text(std::slice::from_raw_parts(text.cast(), length))
            }
            ffi::LUA_TNUMBER => Word::Number(ffi::lua_tonumber(state, at)),
            _ => Word::Other,
        }
    };
    // SAFETY: it only counts.
    (1..=unsafe { ffi::lua_gettop(state) }).map(word)
}

/// Leaves on the stack what a script gets for a reply in RESP, and says whether it is an error.
/// `at` is moved behind it.
unsafe fn push_reply(state: *mut ffi::lua_State, reply: &[u8], at: &mut usize) -> bool {
    let line = Line::take(reply, at);
    // SAFETY: there is room on the stack for a table with a key and a value; each table is below
    // what it takes.
    unsafe {
        ffi::luaL_checkstack(state, PLACES, ptr::null());
        match (line.kind, line.length()) {
            (b'+', _) => push_single(state, c"ok", line.text),
            (b'-', _) => {
                push_single(state, c"err", line.text);
                return true;
            }
            (b':', _) => ffi::lua_pushnumber(state, line.number() as f64),
            (b'$', Some(length)) => {
                let text = &reply[*at..*at + length];
                *at += length + 2;
                ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len());
            }
            (b'*', Some(length)) => {
                ffi::lua_createtable(state, length as c_int, 0);
                for place in 1..=length {
                    push_reply(state, reply, at);
                    ffi::lua_rawseti(state, -2, place as ffi::lua_Integer);
                }
            }
            (b'$' | b'*', None) => ffi::lua_pushboolean(state, 0),
            (b'%', length) => {
                ffi::lua_createtable(state, 0, 1);
                ffi::lua_createtable(state, 0, 0);
                for _ in 0..length.unwrap_or(0) {
                    push_reply(state, reply, at);
                    push_reply(state, reply, at);
                    ffi::lua_rawset(state, -3);
                }
                ffi::lua_setfield(state, -2, c"map".as_ptr());
            }
            _ => ffi::lua_pushnil(state),
        }
    }
    false
}

/// Leaves a table with one field on the stack.
unsafe fn push_single(state: *mut ffi::lua_State, name: &CStr, text: &[u8]) {
    // SAFETY: the caller has made room for a table and a value.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len());
        ffi::lua_setfield(state, -2, name.as_ptr());
    }
}

/// A function of C that calls one of Lua: a script's tail call of it leaves the script's line to be
/// found.
pub(super) fn native(lua: &Lua, called: Function) -> mlua::Result<Function> {
    // SAFETY: `called` is on the stack, and becomes the upvalue of what is left there.
    unsafe { lua.exec_raw(called, |state| ffi::lua_pushcclosure(state, call_wrapped, 1)) }
}

/// Calls the function that it was made of, with all arguments.
unsafe extern "C-unwind" fn call_wrapped(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls it with a state of its own. It takes its only upvalue, which is a function,
    // in front of its arguments and calls it; nothing of Rust is on this stack that an error would
    // have to drop.
    unsafe {
        let arguments = ffi::lua_gettop(state);
        ffi::luaL_checkstack(state, 1, ptr::null());
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, arguments, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}
