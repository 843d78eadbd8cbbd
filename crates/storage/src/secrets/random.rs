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

/// Random numbers for the text of a key or token, each uniformly distributed over `0..62`.
#[must_use]
pub fn random_base62() -> [u8; 32] {
    let mut numbers = [0; 32];
    let mut filled = 0;
    while filled < numbers.len() {
        // 248 is a multiple of 62. Dropping larger bytes makes every number equally likely.
        for byte in random_bytes::<64>().into_iter().filter(|byte| *byte < 248).take(numbers.len() - filled) {
            numbers[filled] = byte % 62;
            filled += 1;
        }
    }
    numbers
}
