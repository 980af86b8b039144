//! Programs that use Tidings' informers. Each reads the kubeconfig that kubectl reads.
//!
//! | example | what it shows |
//! |---|---|
//! | `index` | an informer with an index: the Pods of every node |
//! | `controller` | a controller that keeps a ConfigMap in every Namespace |
//! | `leader` | the same under leader election, with metrics and a graceful stop |
//! | `projected` | Pods with five fields, in a fraction of the memory |
//! | `two_speeds` | two handlers of different speed over one informer |
//! | `read_your_writes` | a program that sees what it wrote |
