//! Which descriptors a user wants: `-e fd=` as strace has it.
//!
//! Given a text as `3,5` or `!0,1,2`; gives the set, and which arguments of a call are descriptors.
//! Must not know what is done with the calls.

use std::collections::BTreeSet;

use crate::decode::types::{Call, Type};

/// A set of descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorSet {
    named: BTreeSet<u32>,
    is_inverse: bool,
}

impl DescriptorSet {
    /// Reads a set: numbers with commas, after `!` all others, `all` or `none`.
    ///
    /// # Errors
    /// The part that is no number of a descriptor, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (is_inverse, list) = match text.strip_prefix('!') {
            Some(list) => (true, list),
            None => (false, text),
        };
        let (is_all, numbers) = match list {
            "all" => (true, ""),
            "none" => (false, ""),
            "" => return Err("a descriptor's number is missing".to_owned()),
            numbers => (false, numbers),
        };
        let read = |part: &str| {
            let number = part.parse::<i32>().ok().filter(|number| *number >= 0);
            let number = number.map(|number| number as u32);
            number.ok_or_else(|| format!("{part:?} is no number of a descriptor"))
        };
        let parts = numbers.split(',').filter(|_| !numbers.is_empty());
        Ok(Self {
            named: parts.map(read).collect::<Result<_, _>>()?,
            is_inverse: is_inverse != is_all,
        })
    }

    /// True if this one is in it; no negative number is.
    pub fn contains(&self, descriptor: i32) -> bool {
        let number = u32::try_from(descriptor);
        number.is_ok_and(|number| self.named.contains(&number) != self.is_inverse)
    }

    /// True if one of a call's arguments is a descriptor of the set.
    pub fn is_in(&self, call: &Call, args: &[u64]) -> bool {
        let mask = arguments(call);
        let mut all = args.iter().enumerate();
        all.any(|(i, arg)| i < 8 && mask & 1 << i != 0 && self.contains(*arg as i32))
    }
}

/// Which arguments of a call are descriptors: bits by their number.
pub fn arguments(call: &Call) -> u8 {
    let is_one = |ty: &Type| matches!(ty, Type::Fd | Type::DirFd);
    let all = call.parameters.iter().take(8).enumerate();
    all.filter(|(_, ty)| is_one(ty))
        .fold(0, |mask, (i, _)| mask | 1 << i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::by_name;

    #[test]
    fn a_set_is_of_those_that_are_named_or_of_all_others() {
        let set = DescriptorSet::parse("3,5").unwrap();
        assert!(set.contains(3) && set.contains(5) && !set.contains(4));
        let others = DescriptorSet::parse("!0,1,2").unwrap();
        assert!(!others.contains(1) && others.contains(3) && !others.contains(-100));
        assert!(DescriptorSet::parse("all").unwrap().contains(7));
        assert!(!DescriptorSet::parse("!all").unwrap().contains(7));
        assert!(!DescriptorSet::parse("none").unwrap().contains(7));
        for wrong in ["", "!", "3,", "x", "-1", "3-5"] {
            assert!(DescriptorSet::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_arguments_of_a_call_say_which_are_descriptors() {
        let of = |name: &str| arguments(by_name(name).unwrap());
        assert_eq!((of("read"), of("dup2"), of("openat")), (1, 3, 1));
        assert_eq!((of("mmap"), of("getpid")), (16, 0));
        let set = DescriptorSet::parse("3").unwrap();
        let on = |name: &str, args: [u64; 6]| set.is_in(by_name(name).unwrap(), &args);
        assert!(on("read", [3, 0, 0, 0, 0, 0]) && on("dup2", [1, 3, 0, 0, 0, 0]));
        // A width of 32 bits, whatever stands above.
        assert!(on("close", [0xffff_0000_0000_0003, 0, 0, 0, 0, 0]));
        assert!(!on("getpid", [3; 6]) && !on("read", [4, 3, 3, 3, 3, 3]));
    }
}
