//! The cases that apimachinery (0.36.4) publishes for label and field selectors, held against ours.

use tidings_api::{FieldSelector, LabelSelector, Labels};

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn labels(pairs: Pairs<'_>) -> Labels {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn label_selector(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn w66_labels_that_are_selected_and_others() {
    let both: Pairs<'_> = &[("foo", "bar"), ("baz", "blah")];
    let cases: &[(&str, Pairs<'_>, bool)] = &[
        ("", &[("x", "y")], true),
        ("x=y", &[("x", "y")], true),
        ("x=y,z=w", &[("x", "y"), ("z", "w")], true),
        ("x!=y,z!=w", &[("x", "z"), ("z", "a")], true),
        ("notin=in", &[("notin", "in")], true),
        ("x", &[("x", "z")], true),
        ("!x", &[("y", "z")], true),
        ("x>1", &[("x", "2")], true),
        ("x<1", &[("x", "0")], true),
        ("x=z", &[], false),
        ("x=y", &[("x", "z")], false),
        ("x=y,z=w", &[("x", "w"), ("z", "w")], false),
        ("x!=y,z!=w", &[("x", "z"), ("z", "w")], false),
        ("x", &[("y", "z")], false),
        ("!x", &[("x", "z")], false),
        ("x>1", &[("x", "0")], false),
        ("x<1", &[("x", "2")], false),
        ("foo=bar", both, true),
        ("baz=blah", both, true),
        ("foo=bar,baz=blah", both, true),
        ("foo=blah", both, false),
        ("baz=bar", both, false),
        ("foo=bar,foobar=bar,baz=blah", both, false),
        (
            "x in (foo),y notin (alpha)",
            &[("x", "foo"), ("y", "baz")],
            true,
        ),
        (
            "x in (foo),y in (alpha)",
            &[("x", "foo"), ("y", "baz")],
            false,
        ),
        ("x notin (),y", &[("y", "")], true),
        ("!x,y", &[("y", "")], true),
        ("x notin (),!y", &[("y", "")], false),
        ("x in ()", &[("y", "baz")], false),
        ("z>1", &[("z", "2")], true),
        ("z>1", &[("z", "v2")], false),
        // What contradicts itself is understood, and selects nothing.
        ("a,!a", &[("a", "b")], false),
        ("a=b,a!=b", &[("a", "b")], false),
        ("a in (b),a notin (b)", &[("a", "b")], false),
    ];
    for (selector, pairs, selected) in cases {
        let matches = label_selector(selector).matches(&labels(pairs));
        assert_eq!(matches, *selected, "{selector:?} of {pairs:?}");
    }
}

#[test]
fn w66_what_is_a_label_selector() {
    for good in [
        "x=a,y=b,z=c",
        "x!=a,y=b",
        "x=",
        "x= ",
        "x=,z= ",
        "x= ,z= ",
        "!x",
        "x>1",
        "x>1,z<5",
        "x==abc,z!=a,z",
    ] {
        assert!(!label_selector(good).is_empty(), "{good:?}");
    }
    assert!(label_selector("").is_empty());
    let long = "a".repeat(254);
    for bad in [
        "x=a||y=b",
        "x==a==b",
        "!x=a",
        "x<a",
        "x>bar",
        "x,,y",
        ",x,y",
        "x nott in (y)",
        "x nott in ()",
        "x in (abc,def),",
        "a in (xyz),",
        "a in (xyz)b notin ()",
        "a in (xyz abc)",
        "a notin(",
        "a (",
        "(",
        "a exists",
        "x=a b",
        &long,
        &format!("x={long}"),
    ] {
        assert!(LabelSelector::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn w66_selectors_that_mean_the_same() {
    for (one, two) in [
        ("\rx", "x"),
        ("a ", "a"),
        ("x=a", "x==a"),
        ("x=a", "x in (a)"),
        ("x!=a", "x notin (a)"),
        ("x in (a,b)", "x in ( b , a , b )"),
        ("x notin ( )", "x!="),
        ("x notin (, a)", "x notin (a,)"),
        ("x notin (abc,,def)", "x notin (,abc,def)"),
        ("z in ()", "z="),
        ("a in (x,y,notin, z,in)", "a in (in,notin,x,y,z)"),
        (
            "this-is-another-dns.domain.com/key-with-dash in (so,what)",
            "this-is-another-dns.domain.com/key-with-dash in (what,so)",
        ),
        (
            "0.1.2.domain/99 in (10-10.A,10.20.30)",
            "0.1.2.domain/99 in (10.20.30,10-10.A)",
        ),
    ] {
        assert_eq!(label_selector(one), label_selector(two), "{one:?} {two:?}");
    }
}

#[test]
fn w66_a_label_that_all_selected_have() {
    for (selector, required) in [
        ("key in (value)", Some(("key", "value"))),
        ("key in (value,value2)", None),
        (
            "key in (value,value1),key2 in (value2)",
            Some(("key2", "value2")),
        ),
        ("key=value", Some(("key", "value"))),
        ("key==value", Some(("key", "value"))),
        ("key!=value", None),
        ("key in (value),key2 in (value2)", Some(("key", "value"))),
    ] {
        assert_eq!(
            label_selector(selector).required_label(),
            required,
            "{selector}"
        );
    }
}

fn field_selector(text: &str) -> FieldSelector {
    FieldSelector::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Field, value, and whether it is to be another.
type Terms<'a> = &'a [(&'a str, &'a str, bool)];

#[test]
fn w67_the_terms_of_a_field_selector() {
    // Terms come in the order of their text.
    let cases: &[(&str, Terms<'_>)] = &[
        ("", &[]),
        ("a=avalue", &[("a", "avalue", false)]),
        (
            "a=avalue,b=bvalue",
            &[("a", "avalue", false), ("b", "bvalue", false)],
        ),
        (
            "a=avalue,b==bvalue,c!=cvalue",
            &[
                ("a", "avalue", false),
                ("b", "bvalue", false),
                ("c", "cvalue", true),
            ],
        ),
        ("a=a,", &[("a", "a", false)]),
        (",a=a", &[("a", "a", false)]),
        (r"k=\,,k2=v2", &[("k2", "v2", false), ("k", ",", false)]),
        (r"k=\\,k2=v2", &[("k2", "v2", false), ("k", r"\", false)]),
        (r"k=\\\,,k2=v2", &[("k2", "v2", false), ("k", r"\,", false)]),
        (r"k=\=", &[("k", "=", false)]),
        (r"k=\\\=\\\,\\", &[("k", r"\=\,\", false)]),
        ("함=수,목=록", &[("목", "록", false), ("함", "수", false)]),
        (r"x=a||y\=b", &[("x", "a||y=b", false)]),
        (r"x=a\=\=b", &[("x", "a==b", false)]),
    ];
    for (text, expected) in cases {
        let selector = field_selector(text);
        let terms: Vec<_> = selector
            .terms()
            .iter()
            .map(|term| (&*term.field, &*term.value, term.negated))
            .collect();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let mut terms = terms;
        terms.sort_unstable();
        assert_eq!(terms, expected, "{text:?}");
        assert_eq!(selector.is_empty(), expected.is_empty(), "{text:?}");
    }
    assert_eq!(field_selector("x=a,a=x"), field_selector("a=x,x=a"));
}

#[test]
fn w67_what_is_no_field_selector() {
    for bad in [
        "x=a||y=b",
        "x==a==b",
        "x=a,b",
        "x in (a)",
        "x in (a,b,c)",
        "x",
        r"k=\",
        r"k=\\\",
        r"k=\a",
        r"k=\a\b\",
    ] {
        assert!(FieldSelector::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn w67_fields_that_are_selected_and_others() {
    let fields: Pairs<'_> = &[("foo", "bar"), ("baz", "blah"), ("complex", r"=value\,\")];
    let cases: &[(&str, Pairs<'_>, bool)] = &[
        ("", &[("x", "y")], true),
        ("x=y", &[("x", "y")], true),
        ("x=y,z=w", &[("x", "y"), ("z", "w")], true),
        ("x!=y,z!=w", &[("x", "z"), ("z", "a")], true),
        ("notin=in", &[("notin", "in")], true),
        ("x=y", &[("x", "z")], false),
        ("x=y,z=w", &[("x", "w"), ("z", "w")], false),
        ("x!=y,z!=w", &[("x", "z"), ("z", "w")], false),
        ("foo=bar", fields, true),
        ("foo=bar,baz=blah", fields, true),
        (r"foo=bar,baz=blah,complex=\=value\\\,\\", fields, true),
        ("foo=blah", fields, false),
        ("baz=bar", fields, false),
        ("foo=bar,foobar=bar,baz=blah", fields, false),
        (r"foo=\=blah", fields, false),
    ];
    for (selector, pairs, selected) in cases {
        let value = |name: &str| {
            let pair = pairs.iter().find(|(field, _)| *field == name);
            pair.map_or("", |(_, value)| value).into()
        };
        let matches = field_selector(selector).matches(value);
        assert_eq!(matches, *selected, "{selector:?} of {pairs:?}");
    }
}

#[test]
fn w67_a_value_that_all_selected_have() {
    for (selector, value) in [
        ("", None),
        ("a=b", None),
        ("test=b", Some("b")),
        ("test=", Some("")),
        ("test!=b", None),
        ("test!=", None),
        ("a=,test=b", Some("b")),
    ] {
        assert_eq!(
            field_selector(selector).required_value("test"),
            value,
            "{selector}"
        );
    }
}
