//! The options of admission plugins.

use anyhow::Context;
use tidings_server::PluginSet;

#[derive(Debug, clap::Args)]
pub(crate) struct AdmissionArguments {
    /// Admission plugins to enable besides those that are enabled anyway
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    enable_admission_plugins: Vec<String>,

    /// Admission plugins to disable, for example ServiceAccount
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    disable_admission_plugins: Vec<String>,
}

impl AdmissionArguments {
    /// The plugins that are enabled.
    pub(crate) fn plugins(&self) -> anyhow::Result<PluginSet> {
        let (enable, disable) = (
            &self.enable_admission_plugins,
            &self.disable_admission_plugins,
        );
        PluginSet::new(enable, disable)
            .context("--enable-admission-plugins or --disable-admission-plugins cannot be used")
    }
}
