//! Mistakes, to see that the model finds them.

use std::collections::HashSet;

use bellbird_domain::{Digest, Fingerprints, RowKey};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A row is gone as soon as one read lacks it.
    EarlyRemoval,
    /// A client that loses a page has its cursor all the same.
    LostPage,
    /// A renewed row gets another key.
    ChangedKey,
    /// Two rows exchange their keys.
    SwappedKeys,
    /// A cursor is valid for another connection.
    ForeignCursor,
    /// A change version of a lost history is accepted.
    Restore,
    /// A change version of a lost history is accepted if this one has it too.
    SameMark,
    /// A row that the provider leaves out for a moment is forgotten.
    NothingPending,
}

/// What a sync stores with the fault.
pub(super) fn spoil(fault: Fault, known: &mut Fingerprints, before: &Fingerprints) {
    let change_version = known.change_versions.last().copied().unwrap_or(0) + 1;
    match fault {
        Fault::EarlyRemoval => {
            for row in known
                .rows
                .iter_mut()
                .filter(|row| row.misses > 0 && !row.is_gone)
            {
                (row.is_gone, row.changed_version) = (true, change_version);
                if known.change_versions.last() != Some(&change_version) {
                    known.change_versions.push(change_version);
                }
            }
        }
        Fault::ChangedKey => {
            let ids: HashSet<Digest> = before.rows.iter().map(|row| row.digests.row).collect();
            let is_renewed = |key: &RowKey| before.rows.iter().any(|row| row.key == *key);
            for row in known
                .rows
                .iter_mut()
                .filter(|row| !ids.contains(&row.digests.row) && is_renewed(&row.key))
            {
                row.key.0[0] ^= 1;
            }
        }
        Fault::SwappedKeys => {
            if let [one, other, ..] = known.rows.as_mut_slice() {
                std::mem::swap(&mut one.key, &mut other.key);
            }
        }
        _ => {}
    }
}
