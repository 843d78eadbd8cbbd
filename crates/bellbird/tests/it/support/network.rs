//! A network of a test's own, with links to it that lose packets silently when they are cut. Needs
//! root or sudo.

use std::process::{Command, id};

/// A link-layer address that nobody has: what is sent to it is lost, and nobody says so.
const NOWHERE: &str = "02:00:00:00:00:01";

/// A network namespace, and links from here to it.
pub(crate) struct Network {
    name: String,
    links: Vec<Link>,
}

struct Link {
    device: String,
    /// The addresses at the two ends.
    here: String,
    there: String,
}

/// As root.
pub(crate) fn privileged(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", "--preserve-env", program]);
    command
}

fn ip(line: &str) {
    let done = privileged("ip").args(line.split(' ')).output().unwrap();
    assert!(
        done.status.success(),
        "ip {line}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

impl Network {
    pub(crate) fn with_links(count: usize) -> Self {
        let name = format!("bellbird{}", id());
        ip(&format!("netns add {name}"));
        let mut network = Self {
            name: name.clone(),
            links: Vec::new(),
        };
        ip(&format!("-netns {name} link set lo up"));
        for number in 0..count {
            let device = format!("bb{}-{number}", id());
            let subnet = format!("10.213.{}", id() % 250);
            let (here, there) = (
                format!("{subnet}.{}", 4 * number + 1),
                format!("{subnet}.{}", 4 * number + 2),
            );
            ip(&format!(
                "link add {device} type veth peer name {device} netns {name}"
            ));
            ip(&format!("address add {here}/30 dev {device}"));
            ip(&format!(
                "-netns {name} address add {there}/30 dev {device}"
            ));
            ip(&format!("link set {device} up"));
            ip(&format!("-netns {name} link set {device} up"));
            network.links.push(Link {
                device,
                here,
                there,
            });
        }
        network
    }

    /// A command within the network. The scripts that start servers then serve all of it.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = privileged("ip");
        command
            .args(["netns", "exec", &self.name, program])
            .env("BELLBIRD_TEST_NETWORK", &self.name);
        command
    }

    /// The address within the network, as this link reaches it.
    pub(crate) fn address(&self, link: usize) -> &str {
        &self.links[link].there
    }

    /// From now on, packets of this link are lost, both ways.
    pub(crate) fn cut(&self, link: usize) {
        let Link {
            device,
            here,
            there,
        } = &self.links[link];
        ip(&format!(
            "neighbour replace {there} lladdr {NOWHERE} dev {device} nud permanent"
        ));
        ip(&format!(
            "-netns {} neighbour replace {here} lladdr {NOWHERE} dev {device} nud permanent",
            self.name
        ));
    }

    pub(crate) fn mend(&self, link: usize) {
        let Link {
            device,
            here,
            there,
        } = &self.links[link];
        ip(&format!("neighbour delete {there} dev {device}"));
        ip(&format!(
            "-netns {} neighbour delete {here} dev {device}",
            self.name
        ));
    }
}

impl Drop for Network {
    /// The links end with their network.
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.name));
    }
}
