//! The variables and digests that a script registers through the libraries.

/// Limit of the variables of one kind that a script names.
const REGISTERED_MAX: usize = 64;

/// Variables that a script named, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registered {
    /// Text variables of flows.
    pub flowvars: Vec<String>,
    /// Number variables of flows.
    pub flowints: Vec<String>,
    /// Variables of the rule.
    pub bytevars: Vec<String>,
    /// It uses JA3 digests.
    pub ja3: bool,
    /// It uses HASSH digests.
    pub hassh: bool,
}

impl Registered {
    pub(crate) fn add(&mut self, kind: &str, name: &str) -> Result<(), String> {
        let list = match kind {
            "flowvar" => &mut self.flowvars,
            "flowint" => &mut self.flowints,
            "bytevar" => &mut self.bytevars,
            "hassh" => {
                self.hassh = true;
                return Ok(());
            }
            _ => {
                self.ja3 = true;
                return Ok(());
            }
        };
        if list.iter().any(|n| n == name) {
            return Ok(());
        }
        if list.len() >= REGISTERED_MAX {
            return Err(format!("more than {REGISTERED_MAX} {kind}s in one script"));
        }
        list.push(name.to_owned());
        Ok(())
    }

    pub(crate) fn of(&self, kind: &str) -> &[String] {
        match kind {
            "flowvar" => &self.flowvars,
            "flowint" => &self.flowints,
            "bytevar" => &self.bytevars,
            _ => &[],
        }
    }
}
