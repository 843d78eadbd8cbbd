//! Reads files in blocks.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::BLOCK_BYTES;
use super::texts::LENGTH_MAX;

/// Calls `visit` with the blocks of a file. Each block begins with the end of the one before it, so
/// that no text is cut in all of them. Returns the size of the file.
pub fn visit_file(path: &Path, visit: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut block = Vec::with_capacity(BLOCK_BYTES + LENGTH_MAX);
    let mut size = 0;
    loop {
        let read = file
            .by_ref()
            .take(BLOCK_BYTES as u64)
            .read_to_end(&mut block)?;
        if read == 0 {
            return Ok(size);
        }
        size += read as u64;
        visit(&block);
        block.drain(..block.len().saturating_sub(LENGTH_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::texts::Texts;

    #[test]
    fn text_across_two_blocks_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut content = vec![b'-'; BLOCK_BYTES - 4];
        content.extend(b"COFFEE SHOP and more");
        std::fs::write(file.path(), &content).unwrap();
        let texts = Texts::new([("COFFEE SHOP", 7)]).unwrap();
        let mut found = Vec::new();
        let size = visit_file(file.path(), &mut |block| {
            texts.find_in(block, &mut |number, _| found.push(number));
        });
        assert_eq!((size.unwrap(), found), (content.len() as u64, vec![7]));
        assert!(visit_file(Path::new("/nonexistent/log"), &mut |_| {}).is_err());
    }
}
