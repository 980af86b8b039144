//! Runs the strategic merge patch cases that apimachinery 0.36.4 publishes. The file has a document, a patch and upstream's
//! result for each case.

use tidings_json::Value;

use super::*;

/// The types of the documents in the cases. An item has lists of items, and maps.
#[derive(Debug, Clone, Copy)]
enum CaseType {
    /// An item with all members.
    Whole,
    /// An item in `retainKeysMap`, with fewer members.
    Retained,
}

impl PatchSchema for CaseType {
    fn member(self, name: &str) -> Option<MemberPatchStrategy<CaseType>> {
        let member = |merge, key, below| MemberPatchStrategy {
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
            (_, "mergingList") | (CaseType::Whole, "retainKeysMergingList" | "mergeItemPtr") => {
                member(true, Some("name"), Some(CaseType::Whole))
            }
            (_, "nonMergingList") => member(false, None, Some(CaseType::Whole)),
            (CaseType::Whole, "retainKeysMap") => member(false, None, Some(CaseType::Retained)),
            (CaseType::Whole, "replacingItem") => MemberPatchStrategy {
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
        let merged = merge(&mut document, &case["patch"], Some(CaseType::Whole));
        let (ours, theirs) = match (merged, case["error"].as_str()) {
            (Ok(()), None) => (document.to_string(), case["result"].to_string()),
            (Err(StrategicPatchError::Malformed(why)), Some(error)) => {
                (why.to_owned(), error.to_owned())
            }
            (Err(StrategicPatchError::Unfit(why)), Some(error)) => (why, error.to_owned()),
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
