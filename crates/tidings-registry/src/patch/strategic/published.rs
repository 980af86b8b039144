//! The cases that apimachinery (0.36.4) publishes for strategic merge patches, held against ours. The files have documents,
//! patches and what the original makes of them, one case a line.

use tidings_json::Value;

use super::*;

/// The types of the cases: an item has lists of items, and maps.
#[derive(Debug, Clone, Copy)]
enum Item {
    Whole,
    /// With fewer members.
    Retained,
}

impl Patched for Item {
    fn member(self, name: &str) -> Option<Member<Item>> {
        let member = |merge, key, below| Member {
            merge,
            replace: false,
            key,
            below,
        };
        Some(match (self, name) {
            (_, "name" | "value" | "other" | "simpleMap" | "nonMergingIntList") => {
                member(false, None, None)
            }
            (_, "mergingIntList") => member(true, None, None),
            (_, "mergingList") | (Item::Whole, "retainKeysMergingList" | "mergeItemPtr") => {
                member(true, Some("name"), Some(Item::Whole))
            }
            (_, "nonMergingList") => member(false, None, Some(Item::Whole)),
            (Item::Whole, "retainKeysMap") => member(false, None, Some(Item::Retained)),
            (Item::Whole, "replacingItem") => Member {
                replace: true,
                ..member(false, None, None)
            },
            _ => return None,
        })
    }
}

#[test]
fn w153_published_cases() {
    let text = include_str!("../../../tests/cases/strategic.json");
    let cases: Vec<Value> = serde_json::from_str(text).expect("a file of cases");
    assert!(!cases.is_empty());
    let mut failures = Vec::new();
    for case in &cases {
        let mut document = case["document"].clone();
        let merged = merge(&mut document, &case["patch"], Some(Item::Whole));
        let (ours, theirs) = match (merged, case["error"].as_str()) {
            (Ok(()), None) => (document.to_string(), case["result"].to_string()),
            (Err(Refusal::Malformed(why)), Some(error)) => (why.to_owned(), error.to_owned()),
            (Err(Refusal::Unfit(why)), Some(error)) => (why, error.to_owned()),
            (Ok(()), Some(error)) => (document.to_string(), error.to_owned()),
            (Err(refusal), None) => (format!("{refusal:?}"), case["result"].to_string()),
        };
        let same = ours == theirs || case.get("error").is_none() && document == case["result"];
        if !same {
            failures.push(format!(
                "{}\n  document {}\n  patch {}\n  is    {ours}\n  wants {theirs}",
                case["name"], case["document"], case["patch"]
            ));
        }
    }
    let (bad, all) = (failures.len(), cases.len());
    assert!(bad == 0, "{bad} of {all} cases:\n{}", failures.join("\n"));
}
