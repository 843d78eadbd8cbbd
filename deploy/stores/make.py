#!/usr/bin/env python3
"""Writes the files that stores and registries want, from app.toml and Cargo.toml.

  deploy/stores/make.py                        writes them
  deploy/stores/make.py --check                fails if one differs
  deploy/stores/make.py --server <bundle>...   prints server.json, with the digests of these MCP bundles
"""

import hashlib
import json
import re
import sys
import textwrap
import tomllib
from pathlib import Path

here = Path(__file__).resolve().parent
root = here.parent.parent
app = tomllib.loads((here / "app.toml").read_text())
package = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]
version, repository = package["version"], package["repository"]
place = repository.removeprefix("https://github.com/")
image = f"ghcr.io/{place.lower()}:{version}"
name, app_id, console, api = app["name"], app["id"], app["console_port"], app["api_port"]
store_console, store_api = app["store_console_port"], app["store_api_port"]
# GitHub itself serves such a file as text, which is no picture to a browser.
icon = f"https://cdn.jsdelivr.net/gh/{place}@v{version}/assets/bellbird.svg"

# What every container gets: nothing writable but its data, and no rights.
hardened = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "stop_grace_period": f"{app['stop_seconds']}s",
    "restart": "unless-stopped",
}


def scalar(value):
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w ./()'-]*", value):
        return value if value.lower() not in ("true", "false", "yes", "no", "on", "off", "null") else f'"{value}"'
    return json.dumps(value, ensure_ascii=False)


def yaml(value, indent=""):
    """Lines of YAML."""
    for key, item in value.items() if isinstance(value, dict) else ((None, item) for item in value):
        start = f"{indent}- " if key is None else f"{indent}{key}:"
        if isinstance(item, str) and len(item) > 80:
            yield f"{start} >-"
            yield from textwrap.wrap(item, 100, initial_indent=indent + "  ", subsequent_indent=indent + "  ")
        elif isinstance(item, dict | list) and item:
            if key is None:
                first, *rest = yaml(item, indent + "  ")
                yield from (start + first.lstrip(), *rest)
            else:
                yield start
                yield from yaml(item, indent + "  ")
        else:
            yield f"{start.rstrip()} {scalar(item)}"


def yaml_file(value, comment="Written by deploy/stores/make.py."):
    return "\n".join([f"# {comment}", *yaml(value), ""])


def json_file(value):
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# Inside as outside, so that the address in the log and those on the pages have the right port.
store_ports = {"API": store_api, "CONSOLE": store_console}
listen = {f"BELLBIRD_{section}__LISTEN": f"0.0.0.0:{port}" for section, port in store_ports.items()}


def service(ports, volume, **more):
    return {"image": image, "ports": ports, "volumes": [volume], **more, **hardened}


def start(store):
    return app["start"].format(log=app["log"][store])


def localized(text):
    return {"en_US": text}


def files():
    on_loopback = [f"127.0.0.1:{port}:{port}" for port in (console, api)]
    yield here / "compose.yaml", yaml_file(
        {
            "name": app_id,
            "services": {app_id: service(on_loopback, f"data:{app['data']}")},
            "volumes": {"data": {}},
        },
        "Written by deploy/stores/make.py. Bellbird with SQLite, and nothing else: docs/image.md",
    )

    # A folder of a repository is an add-on, if it has a config.yaml. This names the repository.
    yield root / "repository.yaml", yaml_file(
        {"name": name, "url": repository, "maintainer": f"{app['developer']} <{app['email']}>"}
    )
    add_on = here / "home-assistant"
    yield add_on / "config.yaml", yaml_file(
        {
            "name": name,
            "version": version,
            "slug": app_id,
            "description": app["tagline"],
            "url": repository,
            "arch": ["amd64", "aarch64"],
            "stage": "experimental",
            "webui": f"http://[HOST]:[PORT:{store_console}]/",
            "ports": {f"{store_console}/tcp": store_console, f"{store_api}/tcp": store_api},
            "ports_description": {f"{store_console}/tcp": "Pages", f"{store_api}/tcp": "API"},
            "environment": listen,
            # A copy of a database that is being written is not one that can be restored.
            "backup": "cold",
            "timeout": app["stop_seconds"],
        }
    )
    # The supervisor's /data belongs to root.
    lines = ("# Written by deploy/stores/make.py.", f"FROM {image}", "# hadolint ignore=DL3002", "USER 0:0", "")
    yield add_on / "Dockerfile", "\n".join(lines)
    # The tab Info.
    paragraphs = (textwrap.fill(text, 100) for text in (app["description"], start("home_assistant")))
    yield (add_on / "README").with_suffix(".md"), "\n\n".join([f"# {name}", *paragraphs]) + "\n"

    yield here / "casaos/docker-compose.yml", yaml_file(
        {
            "name": app_id,
            # CasaOS makes the folder, for root. With the app it would delete a named volume, and the master key in it.
            "services": {
                app_id: service(
                    [f"{port}:{port}" for port in (store_console, store_api)],
                    f"/DATA/AppData/$AppID/data:{app['data']}",
                    user="0:0",
                    environment=listen,
                    container_name=app_id,
                )
            },
            "x-casaos": {
                "id": f"io.github.{place.lower().replace('/', '.')}",
                "main": app_id,
                "index": "/",
                "port_map": str(store_console),
                "scheme": "http",
                "title": localized(name),
                "icon": icon,
                "tagline": localized(app["tagline"]),
                "description": localized(app["description"]),
                "tips": {"before_install": localized(start("casaos"))},
                "author": app["developer"],
                "developer": app["developer"],
                "category": "Finance",
                "architectures": ["amd64", "arm64"],
                "version": version,
                "repo": repository,
                "support": f"{repository}/issues",
            },
        }
    )

    # A repository is a store, if it has this and, at its root, a folder for each app: here, a link to it.
    yield root / "umbrel-app-store.yml", yaml_file({"id": app_id, "name": name})
    yield here / "umbrel/umbrel-app.yml", yaml_file(
        {
            "manifestVersion": 1,
            "id": app_id,
            "category": "finance",
            "name": name,
            "version": version,
            "tagline": app["tagline"],
            "description": f"{app['description']} {start('umbrel')}",
            "icon": icon,
            "developer": app["developer"],
            "website": repository,
            "dependencies": [],
            "repo": repository,
            "support": f"{repository}/issues",
            "port": store_console,
            "gallery": [],
            "path": "",
            "defaultUsername": "",
            "defaultPassword": "",
            "releaseNotes": "",
            "submitter": app["developer"],
            "submission": repository,
        }
    )
    yield here / "umbrel/docker-compose.yml", yaml_file(
        {
            "services": {
                "app_proxy": {"environment": {"APP_HOST": f"{app_id}_server_1", "APP_PORT": store_console}},
                # Umbrel's folders belong to this user.
                "server": service(
                    [f"{store_api}:{store_api}"],
                    f"${{APP_DATA_DIR}}/data:{app['data']}",
                    user="1000:1000",
                    environment=listen
                    | {
                        f"BELLBIRD_{section}__PUBLIC_URL": f"http://${{DEVICE_DOMAIN_NAME}}:{port}"
                        for section, port in store_ports.items()
                    },
                )
                | {"restart": "on-failure"},
            },
        }
    )

    # A folder that is not there would belong to root.
    yield here / "umbrel/data/.gitkeep", ""

    yield here / "mcp/manifest.json", json_file(
        {
            "manifest_version": "0.3",
            "name": app_id,
            "display_name": name,
            "version": version,
            "description": app["tagline"],
            "long_description": app["description"],
            "author": {"name": app["developer"]},
            "repository": {"type": "git", "url": repository},
            "license": package["license"],
            "server": {
                "type": "binary",
                "entry_point": f"server/{app_id}",
                "mcp_config": {
                    "command": f"${{__dirname}}/server/{app_id}",
                    "args": ["mcp"],
                    "env": {variable: f"${{user_config.{key}}}" for variable, key, *_ in mcp_settings},
                },
            },
            "tools_generated": True,
            "compatibility": {"platforms": ["linux"]},
            "user_config": {
                key: {
                    "type": "string",
                    "title": key.capitalize(),
                    "description": text,
                    "required": True,
                    **({"sensitive": True} if is_secret else {"default": f"http://127.0.0.1:{api}"}),
                }
                for _, key, text, is_secret in mcp_settings
            },
        }
    )


mcp_settings = [
    ("BELLBIRD_URL", "address", "The address of the API", False),
    ("BELLBIRD_KEY", "key", "An API key, which the console makes", True),
]


def server(bundles):
    """What the MCP registry wants."""
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        # Who may publish it is compared letter by letter with the owner at GitHub.
        "name": f"io.github.{place}",
        "title": name,
        "description": app["tagline"],
        "repository": {"url": repository, "source": "github"},
        "version": version,
        "packages": [
            {
                "registryType": "mcpb",
                "identifier": f"{repository}/releases/download/v{version}/{bundle.name}",
                "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": variable, "description": text, "isRequired": True, "isSecret": is_secret}
                    for variable, _, text, is_secret in mcp_settings
                ],
            }
            for bundle in bundles
        ],
    }


match sys.argv[1:]:
    case ["--server", *bundles] if bundles:
        print(json_file(server([Path(bundle) for bundle in bundles])), end="")
    case ["--check"]:
        wrong = [str(path) for path, text in files() if not path.exists() or path.read_text() != text]
        if wrong:
            sys.exit(f"run deploy/stores/make.py, which changes {', '.join(wrong)}")
    case []:
        for path, text in files():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    case _:
        sys.exit(__doc__)
