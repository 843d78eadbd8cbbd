//! What an instance does. By default everything.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The listeners of the API and of operators
    Api,
    /// The listener of the console, which also receives provider events
    Console,
    /// Jobs, webhook deliveries and e-mails
    Worker,
}

impl Role {
    /// Whether the row of an instance names it.
    pub fn is_in(self, names: &[String]) -> bool {
        self.to_possible_value()
            .is_some_and(|role| names.iter().any(|name| name == role.get_name()))
    }
}

#[derive(Debug, Clone)]
pub struct Roles(Vec<Role>);

impl Roles {
    pub fn all() -> Self {
        Self(Role::value_variants().to_vec())
    }

    /// None means all.
    pub fn only(roles: Vec<Role>) -> Self {
        if roles.is_empty() {
            Self::all()
        } else {
            Self(roles)
        }
    }

    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    pub fn names(&self) -> Vec<String> {
        let all = Role::value_variants()
            .iter()
            .filter(|role| self.has(**role));
        all.filter_map(Role::to_possible_value)
            .map(|role| role.get_name().to_owned())
            .collect()
    }

    pub fn are_all(&self) -> bool {
        Role::value_variants().iter().all(|role| self.has(*role))
    }
}
