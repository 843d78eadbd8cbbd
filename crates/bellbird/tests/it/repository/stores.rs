//! The files of deploy/stores have what the stores ask for. Their own checks are programs, so this
//! is a list of the fields and forms in their documentation.

use serde_json::Value;

use super::{read, root};

fn file(name: &str) -> Value {
    yaml_serde::from_str(&read(&root().join("deploy/stores").join(name))).unwrap()
}

#[track_caller]
fn assert_has(of: &Value, fields: &str) {
    for field in fields.split_whitespace() {
        assert!(!of[field].is_null(), "no {field} in {of}");
    }
}

fn ports(service: &Value) -> Vec<&str> {
    let ports = service["ports"].as_array().unwrap();
    ports.iter().map(|port| port.as_str().unwrap()).collect()
}

/// Nothing writable but the data, no rights, and a version that does not change.
#[track_caller]
fn assert_hardened(service: &Value) {
    assert_eq!(service["read_only"], true);
    assert_eq!(service["cap_drop"], serde_json::json!(["ALL"]));
    let image = service["image"].as_str().unwrap();
    assert!(
        image.ends_with(concat!(":", env!("CARGO_PKG_VERSION"))),
        "{image}"
    );
    let volumes = service["volumes"].as_array().unwrap();
    assert!(volumes.len() == 1 && volumes[0].as_str().unwrap().ends_with(":/data"));
}

/// supervisor/addons/validate.py of home-assistant/supervisor.
#[test]
fn home_assistant_takes_the_add_on() {
    let config = file("home-assistant/config.yaml");
    assert_has(&config, "name version slug description arch");
    assert_eq!(config["arch"], serde_json::json!(["amd64", "aarch64"]));
    for (field, allowed) in [
        ("startup", "initialize system services application once"),
        ("boot", "auto manual manual_only"),
        ("stage", "stable experimental deprecated"),
        ("backup", "hot cold"),
    ] {
        let value = config[field].as_str().unwrap();
        assert!(
            allowed.split(' ').any(|word| word == value),
            "{field}: {value}"
        );
    }
    for field in ["webui", "watchdog"] {
        let (_, rest) = config[field].as_str().unwrap().split_once("://").unwrap();
        let port = rest.strip_prefix("[HOST]:[PORT:").unwrap();
        let (port, _) = port.split_once(']').unwrap();
        assert!(!config["ports"][format!("{port}/tcp")].is_null(), "{port}");
    }
    let timeout = config["timeout"].as_u64().unwrap();
    assert!((10..=300).contains(&timeout));
    let docker = read(&root().join("deploy/stores/home-assistant/Dockerfile"));
    assert!(docker.contains("\nFROM "), "{docker}");
}

/// The page "compose and x-casaos" of IceWhaleTech/CasaOS-AppStore.
#[test]
fn casaos_takes_the_app() {
    let compose = file("casaos/docker-compose.yml");
    let about = &compose["x-casaos"];
    assert_has(
        about,
        "main index port_map scheme title icon tagline description tips author",
    );
    assert_has(
        about,
        "developer category architectures version repo support",
    );
    for text in ["title", "tagline", "description"] {
        assert_has(&about[text], "en_US");
    }
    assert_has(&about["tips"]["before_install"], "en_US");
    let service = &compose["services"][about["main"].as_str().unwrap()];
    let published = format!("{0}:{0}", about["port_map"].as_str().unwrap());
    assert!(ports(service).contains(&published.as_str()), "{service}");
    assert_hardened(service);
}

/// The manifest of getumbrel/umbrel-apps.
#[test]
fn umbrel_takes_the_app() {
    let app = file("umbrel/umbrel-app.yml");
    assert_has(
        &app,
        "manifestVersion id category name version tagline description developer",
    );
    assert_has(
        &app,
        "website dependencies repo support port gallery path defaultUsername",
    );
    assert_has(&app, "defaultPassword releaseNotes submitter submission");
    let is_id = |c: char| c.is_ascii_lowercase() || c == '-';
    let id = app["id"].as_str().unwrap();
    assert!(id.chars().all(is_id), "{id}");
    let tagline = app["tagline"].as_str().unwrap();
    assert!(tagline.len() <= 50 && !tagline.ends_with('.'), "{tagline}");

    let services = &file("umbrel/docker-compose.yml")["services"];
    let proxy = &services["app_proxy"]["environment"];
    assert_eq!(proxy["APP_HOST"], format!("{id}_server_1"));
    assert_eq!(proxy["APP_PORT"], 8081);
    assert_hardened(&services["server"]);
    // The proxy has the port of the pages.
    let port = format!("{}:", app["port"]);
    assert!(
        ports(&services["server"])
            .iter()
            .all(|own| !own.starts_with(&port))
    );
    // Docker would make it for root.
    let volume = services["server"]["volumes"][0].as_str().unwrap();
    assert_eq!(volume, "${APP_DATA_DIR}/data:/data");
    assert!(root().join("deploy/stores/umbrel/data").is_dir());
}
