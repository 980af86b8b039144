//! Which parts of a value have changed.

/// Which parts of a value have changed.
#[derive(Debug, Clone)]
pub enum Touched {
    /// Any part may have changed.
    Whole,
    /// Only these members or items have changed.
    Parts(Vec<(TouchedPart, Touched)>),
}

/// A member or an item of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TouchedPart {
    /// The member of this name.
    Member(String),
    /// The item at this index.
    Item(usize),
}

impl Touched {
    /// No part has changed.
    pub const NOTHING: Touched = Touched::Parts(Vec::new());

    /// True if the value, a member or an item has changed as a whole.
    pub fn has_whole(&self) -> bool {
        match self {
            Touched::Whole => true,
            Touched::Parts(parts) => parts
                .iter()
                .any(|(_, touched)| matches!(touched, Touched::Whole)),
        }
    }

    /// The changes of a member; `None` if it has none.
    pub fn member(&self, name: &str) -> Option<&Touched> {
        self.part(|part| matches!(part, TouchedPart::Member(known) if known == name))
    }

    /// The changes of an item; `None` if it has none.
    pub fn item(&self, place: usize) -> Option<&Touched> {
        self.part(|part| *part == TouchedPart::Item(place))
    }

    fn part(&self, is_meant: impl Fn(&TouchedPart) -> bool) -> Option<&Touched> {
        match self {
            Touched::Whole => Some(&Touched::Whole),
            Touched::Parts(parts) => {
                let found = parts.iter().find(|(part, _)| is_meant(part))?;
                Some(&found.1)
            }
        }
    }
}
