//! Faults of a schema that are not reported, because an older schema had them too.

/// Faults of a schema that an update may keep: checks have become stricter over time, and stored definitions must stay writable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ToleratedFaults {
    /// Types that do not exist.
    pub(crate) unknown_types: bool,
    /// A schema that is not structural. Its compiled form cannot handle objects.
    pub(crate) not_structural: bool,
    /// Defaults with unknown fields.
    pub(crate) unpruned_defaults: bool,
    /// Sets whose elements are not atomic.
    pub(crate) set_elements: bool,
    /// Key fields of list maps that may be absent or null.
    pub(crate) list_keys: bool,
    /// Rules that exceed the cost limit of a single rule.
    pub(crate) rule_costs: bool,
}

impl ToleratedFaults {
    /// For a stored schema: all faults with which it can still be served.
    pub(crate) const SERVABLE: ToleratedFaults = ToleratedFaults {
        unknown_types: true,
        not_structural: false,
        unpruned_defaults: true,
        set_elements: true,
        list_keys: true,
        rule_costs: true,
    };
}
