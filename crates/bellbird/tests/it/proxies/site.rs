//! The service behind a proxy that runs with its configuration from `deploy/`. Only names, places
//! and ports differ, and with several instances how long a request looks for another one.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::Value;

use super::curl::{Curl, Response};
use crate::support::deployment::Deployment;
use crate::support::harness::Database;
use crate::support::port::free_port;
use crate::support::process::{Addresses, RunningCommand, Workdir, errors, text};

pub(super) const USER: &str = "olivia@example.com";

#[derive(Debug, Clone, Copy)]
pub(super) enum Program {
    Caddy,
    Nginx,
}

pub(super) struct Site {
    pub(super) workdir: Workdir,
    pub(super) sandbox: RunningCommand,
    /// The instances, and where they listen.
    pub(super) services: Vec<(RunningCommand, Addresses)>,
    proxy: Proxy,
    pub(super) curl: Curl,
    /// Of the site, with the scheme.
    pub(super) url: String,
    pub(super) key: String,
}

/// A running proxy. Dropping it stops its processes.
pub(super) struct Proxy {
    process: Child,
    log: PathBuf,
    https: SocketAddr,
    http: SocketAddr,
}

/// Where the parts of a site are.
struct Places<'a> {
    folder: &'a Path,
    https: SocketAddr,
    http: SocketAddr,
    /// Host and port of each instance.
    api: Vec<&'a str>,
    console: Vec<&'a str>,
}

impl Site {
    /// Starts the service and the proxy. The settings are names of variables after `BELLBIRD_` with
    /// their values.
    pub(super) async fn start(program: Program, settings: &[(&str, &str)]) -> Self {
        Self::start_several(program, 1, settings).await
    }

    /// As [`Self::start`], with so many instances, for which a setting names a database.
    pub(super) async fn start_several(
        program: Program,
        instances: usize,
        settings: &[(&str, &str)],
    ) -> Self {
        let Deployment {
            mut workdir,
            sandbox,
            ..
        } = Deployment::start_on(Database::Sqlite, 2_000, &[]).await;
        let [https, http] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let url = format!("https://localhost:{}", https.port());
        let usual = [
            ("API__PUBLIC_URL", url.as_str()),
            ("CONSOLE__PUBLIC_URL", &url),
            ("API__TRUSTED_PROXIES", "127.0.0.1,::1"),
        ];
        for (name, value) in usual.iter().chain(settings) {
            workdir.set(&format!("BELLBIRD_{name}"), value);
        }
        workdir.json("migrate");
        workdir.json(&format!("user add --email {USER} --plan professional"));
        let key = text(&workdir.json(&format!("key create --user {USER}")), "key").to_owned();
        workdir.import(USER, &sandbox.json()["credentials"][0]);

        let addresses = std::iter::repeat_with(Addresses::new).take(instances);
        let services = addresses
            .enumerate()
            .map(|(number, addresses)| (serve(&workdir, number, &addresses), addresses));
        let services: Vec<_> = services.collect();
        let folder = workdir.folder.path().join("proxy");
        fs::create_dir(&folder).unwrap();
        let (api, console) = services
            .iter()
            .map(|(_, addresses)| (addresses.api.as_str(), addresses.console.as_str()))
            .unzip();
        let places = Places {
            folder: &folder,
            https,
            http,
            api,
            console,
        };
        let (proxy, authority) = match program {
            Program::Caddy => start_caddy(&places),
            Program::Nginx => start_nginx(&places),
        };
        let curl = Curl {
            folder: workdir.folder.path().to_owned(),
            authority,
            port: https.port(),
        };
        let site = Self {
            workdir,
            sandbox,
            services,
            proxy,
            curl,
            url,
            key,
        };
        // Long enough for what a proxy tries again after a minute. If it never works, its log says
        // why.
        let is_up = async {
            while site.get("/health").status != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_up = tokio::time::timeout(Duration::from_secs(75), is_up).await;
        let log = || fs::read_to_string(&site.proxy.log).unwrap();
        assert!(is_up.is_ok(), "{}", log());
        site
    }

    /// Replaces an instance, as an upgrade does. The new one is ready.
    pub(super) fn restart(&mut self, number: usize) {
        let (service, addresses) = self.services.remove(number);
        assert_eq!(service.stop("-TERM").0, Some(0));
        let service = serve(&self.workdir, number, &addresses);
        self.services.insert(number, (service, addresses));
    }

    /// The log of an instance and of those before it.
    pub(super) fn service_log(&self, number: usize) -> String {
        fs::read_to_string(service_log(&self.workdir, number)).unwrap()
    }

    pub(super) fn get(&self, path: &str) -> Response {
        self.curl.send(&[&format!("{}{path}", self.url)])
    }

    /// A GET with the user's key.
    pub(super) fn read(&self, path: &str) -> Response {
        let key = format!("Authorization: Bearer {}", self.key);
        let url = format!("{}{path}", self.url);
        self.curl.send(&["--header", &key, &url])
    }

    pub(super) fn https(&self) -> SocketAddr {
        self.proxy.https
    }

    pub(super) fn http(&self) -> SocketAddr {
        self.proxy.http
    }

    /// Everything that the proxy has logged.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.proxy.log).unwrap()
    }

    /// The folder of the proxy's files.
    pub(super) fn proxy_folder(&self) -> PathBuf {
        self.workdir.folder.path().join("proxy")
    }

    pub(super) fn connections(&self) -> Vec<Value> {
        let answer = self.read("/v1/connections").json();
        answer["data"].as_array().unwrap().clone()
    }
}

fn serve(workdir: &Workdir, number: usize, addresses: &Addresses) -> RunningCommand {
    let log = service_log(workdir, number);
    let line = format!("serve --json {}", addresses.options());
    RunningCommand::start_with_log(workdir, &line, &log)
}

fn service_log(workdir: &Workdir, number: usize) -> PathBuf {
    workdir.folder.path().join(format!("service-{number}.log"))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A killed nginx would leave its workers.
        let _ = Command::new("kill")
            .args(["-TERM", &self.process.id().to_string()])
            .status();
        let _ = self.process.wait();
    }
}

fn committed(path: &str) -> String {
    let deploy = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy"));
    fs::read_to_string(deploy.join(path)).unwrap()
}

#[track_caller]
fn replace(configuration: &mut String, line: &str, new: &str) {
    let has_line = configuration.contains(line);
    assert!(has_line, "no {line:?} in {configuration}");
    *configuration = configuration.replace(line, new);
}

/// Runs the program's own check of the configuration, then the program.
fn run(mut check: Command, mut serve: Command, places: &Places<'_>) -> Proxy {
    let checked = check
        .output()
        .expect("caddy and nginx are installed: scripts/setup proxies");
    assert!(checked.status.success(), "{}", errors(&checked));
    let log = places.folder.join("proxy.log");
    let all = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .unwrap();
    let process = serve
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(all)
        .spawn()
        .unwrap();
    Proxy {
        process,
        log,
        https: places.https,
        http: places.http,
    }
}

/// Caddy makes its own certificate for `localhost`.
fn start_caddy(places: &Places<'_>) -> (Proxy, PathBuf) {
    let mut configuration = committed("caddy/Caddyfile");
    let (https, http) = (places.https.port(), places.http.port());
    let only_here = format!(
        "admin off\ndefault_bind 127.0.0.1\nskip_install_trust\nhttps_port {https}\nhttp_port {http}"
    );
    replace(&mut configuration, "\n{\n", &format!("\n{{\n{only_here}\n"));
    if places.api.len() > 1 {
        // As docs/several-instances.md says.
        replace(&mut configuration, "#health_", "health_");
        // On a busy machine, an instance or the proxy may stand still for longer.
        replace(
            &mut configuration,
            "lb_try_duration 5s",
            "lb_try_duration 50s",
        );
    }
    let path = places.folder.join("Caddyfile");
    fs::write(&path, configuration).unwrap();
    let caddy = |command| {
        let mut caddy = Command::new("caddy");
        caddy.args([command, "--adapter", "caddyfile", "--config"]);
        caddy.arg(&path);
        for folder in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            caddy.env(folder, places.folder);
        }
        caddy.env("BELLBIRD_HOST", "localhost");
        caddy
            .env("BELLBIRD_API", places.api.join(" "))
            .env("BELLBIRD_CONSOLE", places.console.join(" "));
        caddy
    };
    let proxy = run(caddy("validate"), caddy("run"), places);
    let authority = "caddy/pki/authorities/local/root.crt";
    (proxy, places.folder.join(authority))
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64);
    let lines = lines.map(|line| std::str::from_utf8(line).unwrap());
    let text = lines.collect::<Vec<&str>>().join("\n");
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// The committed file within what Debian's nginx.conf has around it.
fn start_nginx(places: &Places<'_>) -> (Proxy, PathBuf) {
    let folder = places.folder.display().to_string();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = places.folder.join("fullchain.pem");
    fs::write(&certificate, pem("CERTIFICATE", cert.der())).unwrap();
    let key = pem("PRIVATE KEY", signing_key.serialized_der());
    fs::write(places.folder.join("privkey.pem"), key).unwrap();
    let mut site = committed("nginx/bellbird.conf");
    for (line, new) in [
        (
            "/etc/letsencrypt/live/bellbird.example.com",
            folder.as_str(),
        ),
        (
            "/var/log/nginx/bellbird.log",
            &format!("{folder}/proxy.log"),
        ),
        ("bellbird.example.com", "localhost"),
        (
            "    server 127.0.0.1:8080 max_fails=0;\n",
            &servers(&places.api),
        ),
        (
            "    server 127.0.0.1:8081 max_fails=0;\n",
            &servers(&places.console),
        ),
        ("listen 80;", &format!("listen {};", places.http)),
        (
            "listen 443 ssl http2;",
            &format!("listen {} ssl http2;", places.https),
        ),
        ("listen [::]:80;", ""),
        ("listen [::]:443 ssl http2;", ""),
    ] {
        replace(&mut site, line, new);
    }
    if places.api.len() > 1 {
        // On a busy machine, an instance or the proxy may stand still for longer.
        replace(
            &mut site,
            "proxy_next_upstream_timeout 10s",
            "proxy_next_upstream_timeout 50s",
        );
    }
    (run_nginx(places, &site), certificate)
}

/// A line for each instance, as docs/several-instances.md says.
fn servers(addresses: &[&str]) -> String {
    let lines = addresses.iter();
    let lines = lines.map(|address| format!("    server {address} max_fails=0;\n"));
    lines.collect()
}

/// nginx with this in its `http` block.
fn run_nginx(places: &Places<'_>, http: &str) -> Proxy {
    let folder = places.folder.display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/temporary-{kind};"))
        .concat();
    let user = fs::metadata("/proc/self").unwrap();
    let user = if std::os::unix::fs::MetadataExt::uid(&user) == 0 {
        "user root;"
    } else {
        ""
    };
    let configuration = format!(
        "{user} daemon off; pid {folder}/nginx.pid; worker_processes 2; error_log stderr info;\n\
         events {{ worker_connections 768; }}\nhttp {{ gzip on; {temporary}\n{http}}}\n"
    );
    let path = places.folder.join("nginx.conf");
    fs::write(&path, configuration).unwrap();
    let nginx = |arguments: &[&str]| {
        let mut nginx = Command::new("nginx");
        nginx.args(arguments);
        nginx.arg("-p").arg(places.folder).arg("-c").arg(&path);
        let folders = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
        nginx.env("PATH", folders);
        nginx
    };
    run(nginx(&["-t"]), nginx(&[]), places)
}
