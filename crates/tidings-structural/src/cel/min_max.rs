//! Bounds of costs and sizes.

/// A lower and an upper bound of a cost or a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MinMax {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl MinMax {
    pub(crate) const UNKNOWN: MinMax = MinMax {
        min: 0,
        max: u64::MAX,
    };

    pub(crate) fn fixed(value: u64) -> MinMax {
        MinMax {
            min: value,
            max: value,
        }
    }

    pub(crate) fn plus(self, other: MinMax) -> MinMax {
        MinMax {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: MinMax) -> MinMax {
        MinMax {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn share(self, factor: f64) -> MinMax {
        let part = |value: u64| {
            let part = (value as f64 * factor).ceil();
            if part >= u64::MAX as f64 {
                u64::MAX
            } else {
                part as u64
            }
        };
        MinMax {
            min: part(self.min),
            max: part(self.max),
        }
    }

    pub(crate) fn union(self, other: MinMax) -> MinMax {
        MinMax {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}
