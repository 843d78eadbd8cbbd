//! Reads the memory of a running process, which Linux shows as files.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::BLOCK_BYTES;
use super::texts::LENGTH_MAX;

/// Bits of an entry of `pagemap`: the page is in memory, or in swap.
const RESIDENT: u8 = 0b1100_0000;

/// Calls `visit` with the blocks of all writable memory of a process that was ever written, and the
/// name of each block's region: `[heap]`, `[stack]`, a file, or `anonymous`. Blocks of one region
/// overlap as those of a file. Returns the number of bytes.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] unless the caller may trace the process.
pub fn visit_memory(process: u32, visit: &mut dyn FnMut(&str, &[u8])) -> io::Result<u64> {
    let page_bytes = rustix::param::page_size() as u64;
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mut memory = File::open(format!("/proc/{process}/mem"))?;
    let mut pagemap = File::open(format!("/proc/{process}/pagemap"))?;
    let mut size = 0;
    // The program itself, which is not writable, cannot contain rows.
    for region in maps
        .lines()
        .filter_map(Region::parse)
        .filter(|region| region.is_writable)
    {
        let mut entries = vec![
            0;
            usize::try_from((region.end - region.start) / page_bytes * 8)
                .unwrap_or_default()
        ];
        pagemap.seek(SeekFrom::Start(region.start / page_bytes * 8))?;
        pagemap.read_exact(&mut entries)?;
        let pages: Vec<bool> = entries
            .chunks_exact(8)
            .map(|entry| entry[7] & RESIDENT != 0)
            .collect();
        let mut page = 0;
        // A row may lie across pages, so pages that follow each other are read together.
        for run in pages.chunk_by(|one, other| one == other) {
            let start = region.start + page * page_bytes;
            page += run.len() as u64;
            let length = run.len() as u64 * page_bytes;
            if run[0] {
                visit_range(&mut memory, start, length, page_bytes, |bytes| {
                    visit(region.name, bytes);
                });
                size += length;
            }
        }
    }
    // A process that ended meanwhile has no regions.
    if size == 0 {
        Err(io::Error::other("the process has ended"))
    } else {
        Ok(size)
    }
}

fn visit_range(
    memory: &mut File,
    start: u64,
    length: u64,
    page_bytes: u64,
    mut visit: impl FnMut(&[u8]),
) {
    let mut block = Vec::new();
    let mut done = 0;
    while done < length {
        let kept = block.len();
        let next = (length - done).min(BLOCK_BYTES as u64);
        block.resize(kept + usize::try_from(next).unwrap_or_default(), 0);
        read_pages(memory, start + done, &mut block[kept..], page_bytes);
        visit(&block);
        block.drain(..block.len().saturating_sub(LENGTH_MAX));
        done += next;
    }
}

/// Pages that have been returned to the system since are read as zeros.
fn read_pages(memory: &mut File, start: u64, bytes: &mut [u8], page_bytes: u64) {
    let mut read = |at: u64, bytes: &mut [u8]| {
        memory
            .seek(SeekFrom::Start(at))
            .and_then(|_| memory.read_exact(bytes))
            .is_ok()
    };
    if read(start, bytes) {
        return;
    }
    let pages = bytes.chunks_mut(usize::try_from(page_bytes).unwrap_or(usize::MAX));
    for (at, page) in (start..)
        .step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX))
        .zip(pages)
    {
        if !read(at, page) {
            page.fill(0);
        }
    }
}

/// A line of `maps`: `7f1c000-7f1e000 rw-p 00000000 00:00 0   [heap]`.
struct Region<'a> {
    start: u64,
    end: u64,
    is_writable: bool,
    name: &'a str,
}

impl<'a> Region<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.split_ascii_whitespace();
        let (start, end) = parts.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        let is_writable = parts.next()?.starts_with("rw");
        let name = parts.nth(3).unwrap_or("anonymous");
        Some(Self {
            start: start?,
            end: end?,
            is_writable,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::texts::Texts;

    #[test]
    fn own_memory_is_readable() {
        // Made at run time, so that the program's file does not contain it.
        let planted: String = (0..40).map(|at| char::from(b'a' + at % 26)).rev().collect();
        let texts = Texts::new([(planted.as_str(), 0)]).unwrap();
        let mut found = 0;
        let size = visit_memory(std::process::id(), &mut |_, block| {
            texts.find_in(block, &mut |_, _| found += 1);
        });
        assert!(size.unwrap() > 0 && found > 0, "{found}");
    }

    #[test]
    fn region_has_its_name() {
        let region =
            Region::parse("7ffd0000-7ffd2000 rw-p 00000000 00:00 0          [stack]").unwrap();
        assert_eq!(
            (region.start, region.end, region.is_writable),
            (0x7ffd_0000, 0x7ffd_2000, true)
        );
        assert_eq!(region.name, "[stack]");
        let region = Region::parse("7f10000-7f20000 r--p 00000000 00:00 0").unwrap();
        assert_eq!((region.name, region.is_writable), ("anonymous", false));
        assert!(Region::parse("").is_none());
    }
}
