//! Masks the parts of an output that differ between two runs of the same commands.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A line of `ls -l`: mode, links, owner, group, bytes, date.
static LONG_LISTING: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^([-dlbcps][-rwxsStT]{9}) +(\d+) +\S+ +\S+ +(\d+) +[A-Z][a-z]{2} +\d+ +[\d:]+ "));
/// The number of a lab.
static LAB: LazyLock<Regex> = LazyLock::new(|| pattern(r"/lab-\d\d\b"));

/// Replaces owners and dates of long listings and the numbers of labs by fixed words.
pub fn mask_volatile(text: &str) -> String {
    let listed = LONG_LISTING.replace_all(text, |found: &Captures<'_>| {
        format!("{} {} OWNER GROUP {} DATE ", &found[1], &found[2], &found[3])
    });
    LAB.replace_all(&listed, "/lab-NN").into_owned()
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_dates_and_lab_numbers_are_masked_and_nothing_else() {
        let listed = "-rw-r--r-- 1 nobody nogroup 12 Nov 29 17:31 fig.txt\n/tmp/lab-07/ada/12:30\n";
        assert_eq!(mask_volatile(listed), "-rw-r--r-- 1 OWNER GROUP 12 DATE fig.txt\n/tmp/lab-NN/ada/12:30\n");
        assert_eq!(mask_volatile("fig 12:30\n"), "fig 12:30\n");
    }
}
