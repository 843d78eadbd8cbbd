use zeroize::Zeroizing;

/// Random bytes for keys and tokens.
///
/// # Panics
/// Never: AWS-LC aborts the process if the operating system has no random numbers.
#[must_use]
pub fn random_bytes<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    aws_lc_rs::rand::fill(&mut *bytes).expect("AWS-LC aborts in place of an error");
    bytes
}
