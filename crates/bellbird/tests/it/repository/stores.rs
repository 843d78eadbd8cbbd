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

/// The pages and the API are at these ports inside as outside, so that the address in the log and
/// those on the pages have the right port.
#[track_caller]
fn assert_listens(environment: &Value, published: &[&str]) {
    let listens = ["CONSOLE", "API"].map(|section| {
        let address = environment[format!("BELLBIRD_{section}__LISTEN")].as_str();
        address.unwrap().strip_prefix("0.0.0.0:").unwrap()
    });
    assert_eq!(listens, published);
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

/// supervisor/apps/validate.py of home-assistant/supervisor, and frenck/action-addon-linter.
#[test]
fn home_assistant_takes_the_app() {
    let config = file("home-assistant/config.yaml");
    assert_has(&config, "name version slug description arch");
    assert_eq!(config["arch"], serde_json::json!(["amd64", "aarch64"]));
    assert_eq!(config["stage"], "experimental");
    assert_eq!(config["backup"], "cold");
    // The linter rejects a default that is written, and this, because the image has a health check.
    for field in ["startup", "boot", "init", "options", "schema", "watchdog"] {
        assert!(config[field].is_null(), "{field}");
    }
    let pages = config["webui"].as_str().unwrap();
    let pages = pages.strip_prefix("http://[HOST]:[PORT:").unwrap();
    let (pages, _) = pages.split_once(']').unwrap();
    let ports = config["ports"].as_object().unwrap();
    let api = ports.keys().map(|port| port.trim_end_matches("/tcp"));
    let api = api.filter(|port| *port != pages).collect::<Vec<_>>();
    assert_listens(&config["environment"], &[pages, api[0]]);
    for (inside, outside) in ports {
        assert_eq!(*inside, format!("{outside}/tcp"));
        assert!(!config["ports_description"][inside].is_null(), "{inside}");
    }
    let timeout = config["timeout"].as_u64().unwrap();
    assert!((10..=300).contains(&timeout));
    let folder = root().join("deploy/stores/home-assistant");
    let docker = read(&folder.join("Dockerfile"));
    assert!(docker.contains("\nFROM "), "{docker}");
    // Width and height are the first fields of a PNG file.
    let icon = std::fs::read(folder.join("icon.png")).unwrap();
    assert_eq!(icon[16..24], [0, 0, 0, 128, 0, 0, 0, 128]);
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
    let published = ports(service).into_iter().map(|port| {
        let (outside, inside) = port.split_once(':').unwrap();
        assert_eq!(outside, inside);
        outside
    });
    let published = published.collect::<Vec<_>>();
    assert_eq!(about["port_map"], published[0]);
    assert_listens(&service["environment"], &published);
    assert_hardened(service);
    // CasaOS makes the folder, for root. It deletes a named volume with the app.
    assert_eq!(service["volumes"][0], "/DATA/AppData/$AppID/data:/data");
    assert_eq!(service["user"], "0:0");
    assert!(compose["volumes"].is_null());
}

/// .tools/lint-apps.mjs of getumbrel/umbrel-apps. It also has a list of the ports that are taken.
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
    assert_eq!(proxy["APP_PORT"], app["port"]);
    let server = &services["server"];
    assert_hardened(server);
    // The proxy has the port of the pages.
    let pages = app["port"].to_string();
    let own = ports(server);
    let (api, inside) = own[0].split_once(':').unwrap();
    assert!(own.len() == 1 && api == inside && api != pages, "{own:?}");
    assert_listens(&server["environment"], &[&pages, api]);
    // Docker would make it for root.
    assert_eq!(server["volumes"][0], "${APP_DATA_DIR}/data:/data");
    assert!(root().join("deploy/stores/umbrel/data").is_dir());

    // umbrelOS reads the apps of a store from the folders at its root. Their ids begin with that of
    // the store.
    let store: Value = yaml_serde::from_str(&read(&root().join("umbrel-app-store.yml"))).unwrap();
    assert!(id.starts_with(store["id"].as_str().unwrap()));
    assert!(root().join(id).join("umbrel-app.yml").is_file());
}
