//! Programs that use Tidings' informers. Each uses the kubeconfig of kubectl.
//!
//! | example | what it shows |
//! |---|---|
//! | `index` | an informer with an index: the Pods of every node |
//! | `mirror` | the least controller: every ConfigMap has a Secret of the same name |
//! | `website` | an operator: its own kind, children, finalizer, conditions, leader election |
//! | `replicas` | several replicas of a controller that share the keys; the permissions that it needs |
//! | `controller` | a controller on the work queue alone, that keeps a ConfigMap in every Namespace |
//! | `leader` | that controller with leader election, metrics and a graceful stop |
//! | `projected` | an informer that keeps five fields of each Pod, in a fraction of the memory |
//! | `two_speeds` | two handlers of different speed over one informer |
//! | `read_your_writes` | a program that reads its own writes |
//! | `in_process` | an API server inside the program, for tests |
//!
//! `guide` is the code of docs/guide.md.

#[cfg(test)]
mod tests {
    fn trimmed(text: &str) -> Vec<&str> {
        text.lines().map(str::trim).collect()
    }

    /// Every piece of Rust on a page is in a program, so that it compiles and runs.
    #[test]
    fn pages_show_code_that_compiles() {
        for (page, program) in [
            (include_str!("../docs/guide.md"), include_str!("guide.rs")),
            (include_str!("../README.md"), include_str!("mirror.rs")),
            (
                include_str!("../docs/controllers.md"),
                concat!(
                    include_str!("mirror.rs"),
                    include_str!("replicas.rs"),
                    include_str!("website/reconcile.rs"),
                    include_str!("website/main.rs")
                ),
            ),
            (
                include_str!("../docs/testing.md"),
                include_str!("in_process.rs"),
            ),
        ] {
            let program = trimmed(program);
            let pieces = page.split("```rust\n").skip(1);
            let pieces: Vec<_> = pieces.filter_map(|rest| rest.split("```").next()).collect();
            assert!(!pieces.is_empty());
            for piece in pieces {
                let lines = trimmed(piece);
                let found = program.windows(lines.len()).any(|window| window == lines);
                assert!(found, "not in the program:\n{piece}");
            }
        }
    }
}
