//! The web console: pages for a browser that show a rack, as files to be served.
//!
//! `web/` has the pages, plain ES modules; what is reviewed there is what a browser runs. `vendor/`
//! has what they take from others, whose origin `tests/e2e/console.sh` checks. The pages ask the
//! rack by the paths of `docs/run/http.md`, relative to where they themselves are.

/// A file of the console.
#[derive(Debug)]
pub struct File {
    /// Where it is, relative to the page: `console/app.js`.
    pub path: &'static str,
    /// What it says.
    pub bytes: &'static [u8],
}

macro_rules! files {
    ($($folder:literal: $($name:literal)+;)+) => {
        &[$($(File {
            path: concat!("console/", $name),
            bytes: include_bytes!(concat!("../", $folder, "/", $name)),
        }),+),+]
    };
}

/// The page that loads all others.
pub const PAGE: File = File { path: "", bytes: include_bytes!("../web/index.html") };

/// What the page loads.
pub const FILES: &[File] = files! {
    "web":
        "app.js" "style.css" "store.js" "text.js" "parts.js" "chains.js" "icon.svg"
        "pages/rack.js" "pages/heat.js" "pages/keys.js" "pages/cache.js" "pages/nodes.js"
        "pages/timeline.js" "pages/lab.js" "pages/health.js";
    "vendor":
        "preact.js" "htm.js" "uplot.js" "uplot.css" "licenses.txt";
};

/// The bytes that a browser loads at most, all files together.
pub const BYTES_MAX: usize = 200_000;

impl File {
    /// The file at `path`, as [`File::path`].
    pub fn at(path: &str) -> Option<&'static File> {
        FILES.iter().find(|file| file.path == path)
    }

    /// Its media type.
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "txt" => "text/plain; charset=utf-8",
            _ => "text/html; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { below(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn every_file_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = Vec::new();
        below(&root.join("web"), &mut found);
        for path in found {
            let name = path.strip_prefix(root.join("web")).unwrap().to_str().unwrap();
            let is_there = name == "index.html" || File::at(&format!("console/{name}")).is_some();
            assert!(is_there, "{name} is not in FILES");
        }
    }

    #[test]
    fn a_browser_loads_little() {
        let loaded = FILES.iter().chain([&PAGE]).filter(|file| !file.path.ends_with(".txt"));
        let bytes: usize = loaded.map(|file| file.bytes.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} of at most {BYTES_MAX} bytes");
    }

    /// A path that begins with `/`, or names a host, would not survive a proxy that serves the rack
    /// under a path, and the content policy allows no script in the page itself.
    #[test]
    fn pages_name_no_host_and_no_root() {
        let own = FILES.iter().filter(|file| !file.path.contains("uplot")).chain([&PAGE]);
        for file in own.filter(|file| !file.path.ends_with(".txt")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            let text = text.replace("http://www.w3.org/", "");
            for word in ["http:", "https:", "src=\"/", "href=\"/", "\"/console", "<script>"] {
                assert!(!text.contains(word), "{}: {word}", file.path);
            }
        }
    }
}
