//! Sections of the providers. Each provider declares its own settings; this module turns them into table entries.

use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_providers::settings::{Form, Setting};
use secrecy::SecretString;

use super::error::SettingError;
use super::kinds::{optional_secret, optional_text, url};
use super::source::Values;
use super::{Key, Section, find_key};

pub(super) fn sections() -> impl Iterator<Item = Section> {
    PROVIDERS.iter().map(|provider| Section {
        name: provider.name.as_str(),
        help: provider.help,
        keys: provider.settings.iter().map(key).collect(),
    })
}

fn key(setting: &Setting) -> Key {
    let (default, example) = match setting.form {
        Form::Url(default) => (Some(format!("\"{default}\"").into()), None),
        Form::Text | Form::Secret => (None, Some("\"...\"")),
    };
    Key { name: setting.name, help: setting.help, default, example, secret: setting.form == Form::Secret }
}

pub(super) fn read(values: &Values, errors: &mut Vec<SettingError>) -> ProviderSettings {
    let mut settings = ProviderSettings::default();
    for provider in PROVIDERS {
        let name = provider.name.as_str();
        let section = settings.section(provider);
        for setting in provider.settings {
            let key = find_key(name, setting.name);
            let value = match setting.form {
                Form::Url(_) => values.read(name, key, url(), errors).map(SecretString::from),
                Form::Text => values.read(name, key, optional_text(), errors).flatten().map(SecretString::from),
                Form::Secret => values.read(name, key, optional_secret(), errors).flatten(),
            };
            if let Some(value) = value {
                section.set(setting.name, value);
            }
        }
    }
    settings
}
