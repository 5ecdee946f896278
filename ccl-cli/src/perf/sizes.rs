//! Message sizes on the command line: nccl-tests' units and series.

/// Most sizes of one run: beyond it a series is a typing mistake.
const MOST_SIZES: usize = 10_000;

/// How a series of sizes goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// By a factor.
    Factor(u64),
    /// By a number of bytes.
    Bytes(u64),
}

/// `8`, `4K`, `128M`, `1G`: bytes, in binary units.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let refuse = || format!("'{text}' is not a size above 0, such as 8, 4K, 128M or 1G");
    let (digits, shift) = match text.chars().last() {
        Some('K' | 'k') => (&text[..text.len() - 1], 10),
        Some('M' | 'm') => (&text[..text.len() - 1], 20),
        Some('G' | 'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse());
    }
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| (1..=1 << 60).contains(size)).ok_or_else(refuse)
}

/// The element counts of a series of sizes from `min` to `max` bytes. Sizes that hold the same number of elements are
/// one.
pub(super) fn counts(min: u64, max: u64, step: Step, element: u64) -> Result<Vec<u64>, String> {
    if min > max {
        return Err(format!("the least size (-b {min}) is above the largest (-e {max})"));
    }
    let next = |size: u64| match step {
        Step::Factor(factor) => size.checked_mul(factor),
        Step::Bytes(bytes) => size.checked_add(bytes),
    };
    let mut counts = Vec::new();
    let series = std::iter::successors(Some(min), |size| next(*size)).take_while(|size| *size <= max);
    for (number, size) in series.enumerate() {
        if number == MOST_SIZES {
            return Err(format!("more than {MOST_SIZES} sizes from {min} to {max} bytes"));
        }
        counts.push(size / element);
    }
    counts.dedup();
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary() {
        for (text, size) in
            [("8", 8), ("4K", 4096), ("3k", 3072), ("128M", 128 << 20), ("1G", 1 << 30), ("2g", 2 << 30)]
        {
            assert_eq!(parse(text), Ok(size), "{text}");
        }
        for text in
            ["", "K", "0", "0M", "-5", "+5", "1.5M", "8B", "4T", " 8", "99999999999999999999", "9999999999G", "µ"]
        {
            let error = parse(text).expect_err(text);
            assert!(error.contains("4K"), "{error}");
        }
    }

    #[test]
    fn series_as_in_nccl_tests() {
        assert_eq!(counts(8, 1 << 10, Step::Factor(4), 2), Ok(vec![4, 16, 64, 256]));
        assert_eq!(counts(8, 16, Step::Bytes(4), 4), Ok(vec![2, 3, 4]));
        assert_eq!(counts(8, 8, Step::Factor(2), 4), Ok(vec![2]));
        // Below an element there is nothing to send, once.
        assert_eq!(counts(1, 8, Step::Factor(2), 4), Ok(vec![0, 1, 2]));
        assert_eq!(counts(1 << 59, 1 << 60, Step::Factor(1 << 40), 4), Ok(vec![1 << 57]));
        assert!(counts(16, 8, Step::Factor(2), 4).is_err_and(|error| error.contains("-b 16")));
        assert!(counts(1, 1 << 30, Step::Bytes(1), 4).is_err_and(|error| error.contains("sizes")));
    }
}
