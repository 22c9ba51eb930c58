//! Why the system refuses an address or a directory, in words that an operator can act upon.

use std::io::{self, ErrorKind};

/// Why nothing can be bound to an address.
pub fn address_refused(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            "another program has it, perhaps a rack that runs already".to_owned()
        }
        ErrorKind::AddrNotAvailable => "this machine doesn't have the address".to_owned(),
        ErrorKind::PermissionDenied => "ports below 1024 need privileges".to_owned(),
        _ => error.to_string(),
    }
}

/// Why a directory, or a file in it, can't be made, read or written.
pub fn directory_refused(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "the user that runs this may not write there".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "its file system is read-only".to_owned(),
        ErrorKind::StorageFull => "no space is left on its device".to_owned(),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file is where a directory should be".to_owned()
        }
        _ => error.to_string(),
    }
}
