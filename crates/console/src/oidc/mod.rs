//! The operator's identity provider: what it says of itself, and the exchange of a code for an
//! identity.

pub(crate) mod attempt;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bellbird_limits::{InFlight, Permit};
use bellbird_providers::http::pool::{self, GaiResolver, Limits, Pool, tls_config};
use bellbird_providers::settings::provider_url;
use bytes::Bytes;
use chrono::DateTime;
use http::Uri;
use http_body_util::Full;
use jiff::Timestamp;
use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreIdToken, CoreIdTokenClaims,
    CoreJwsSigningAlgorithm, CoreProviderMetadata, CoreUserInfoClaims,
};
use openidconnect::{
    AccessToken, AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret,
    CsrfToken, DiscoveryError, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest,
    HttpResponse, IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, RequestTokenError, Scope, SignatureVerificationError, TokenResponse as _,
    UserInfoError,
};
use secrecy::ExposeSecret as _;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use self::attempt::Attempt;
use crate::settings::OidcSettings;

/// Of one call to the provider, from connecting to the last byte.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_BYTES_MAX: usize = 256 * 1024;
/// How long the provider's metadata and keys are used. They are read again when a key is unknown.
const METADATA_MAX_AGE: Duration = Duration::from_secs(3600);
/// Sign-ins that ask the provider at the same time, each for some calls.
const ASKED_AT_ONCE_MAX: usize = 32;
/// After a failure, nobody waits for another one before this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// That of OpenID Connect for a subject.
const SUBJECT_BYTES_MAX: usize = 255;
const LIMITS: Limits = Limits {
    connect_timeout: Duration::from_secs(5),
    tcp_timeout: None,
    idle_timeout: Duration::from_secs(20),
    idle_max: 2,
    reuse_max: Duration::from_secs(15),
    read_buffer_bytes: 64 * 1024,
    headers_max: 100,
};
/// The signatures by a key of the provider's.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// Why nobody is signed in. The texts are for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderError {
    /// It does not respond, or not as the specification says. Another attempt may succeed.
    Unavailable(&'static str),
    /// It does not accept the code, or what it says of the user is not proven.
    Rejected(&'static str),
    EmailNotVerified,
}

impl ProviderError {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Unavailable(reason) | Self::Rejected(reason) => reason,
            Self::EmailNotVerified => "the e-mail address is not verified",
        }
    }
}

use ProviderError::{Rejected, Unavailable};

const TOO_MANY: ProviderError = Unavailable("too many sign-ins at once");

/// Who a user is, proven by the provider. The e-mail address is verified.
pub(crate) struct ProvenIdentity {
    pub(crate) subject: String,
    pub(crate) email: String,
}

/// What the provider says of itself, and when it was asked last.
#[derive(Default)]
struct Known {
    metadata: Option<(Arc<CoreProviderMetadata>, Instant)>,
    failed: Option<(ProviderError, Instant)>,
}

pub(crate) struct IdentityProvider {
    pub(crate) settings: OidcSettings,
    redirect_uri: String,
    /// The host of the issuer, which users see.
    pub(crate) name: String,
    known: Mutex<Known>,
    permits: Semaphore,
    /// One for each client address, so that nobody holds all the others with made-up codes.
    permits_of_address: InFlight<IpAddr>,
}

/// The right to exchange one code.
pub(crate) type ExchangePermit<'p> = (Option<Permit<IpAddr>>, SemaphorePermit<'p>);

/// Asks the identity provider for its metadata and keys. Returns the redirect URI to register
/// there, or the reason why users cannot sign in.
pub async fn check_identity_provider(
    settings: &OidcSettings,
    console_url: &str,
) -> Result<String, &'static str> {
    let provider = IdentityProvider::new(settings, console_url);
    let checked = async { provider.client(&*provider.metadata(None).await?).map(drop) };
    checked.await.map_err(ProviderError::reason)?;
    Ok(provider.redirect_uri)
}

impl IdentityProvider {
    pub(crate) fn new(settings: &OidcSettings, console_url: &str) -> Self {
        let host = settings
            .issuer
            .parse::<Uri>()
            .ok()
            .and_then(|issuer| issuer.host().map(str::to_owned));
        Self {
            settings: settings.clone(),
            redirect_uri: format!(
                "{}/sign-in/oidc/callback",
                console_url.trim_end_matches('/')
            ),
            name: host.unwrap_or_default(),
            known: Mutex::default(),
            permits: Semaphore::new(ASKED_AT_ONCE_MAX),
            permits_of_address: InFlight::new(1),
        }
    }

    /// Where the browser asks the provider to sign it in.
    pub(crate) async fn authorization_url(
        &self,
        attempt: &Attempt,
    ) -> Result<String, ProviderError> {
        let _permit = self.permits.try_acquire().map_err(|_| TOO_MANY)?;
        let client = self.client(&*self.metadata(None).await?)?;
        let (state, nonce) = (CsrfToken::new(attempt.state()), Nonce::new(attempt.nonce()));
        let verifier = PkceCodeVerifier::new(attempt.code_verifier());
        let (url, ..) = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                move || state,
                move || nonce,
            )
            .add_scope(Scope::new("email".to_owned()))
            .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
            .url();
        match provider_url(url.as_str()) {
            Some(_) => Ok(url.into()),
            None => Err(Unavailable("its authorization endpoint is no https URL")),
        }
    }

    /// Permits a client to exchange a code. None: others of its address do, or many others.
    /// `address` is None without a listener.
    pub(crate) fn admit(&self, address: Option<IpAddr>) -> Option<ExchangePermit<'_>> {
        let of_address =
            address.map(|address| self.permits_of_address.try_acquire(address).ok_or(()));
        Some((
            of_address.transpose().ok()?,
            self.permits.try_acquire().ok()?,
        ))
    }

    /// Exchanges the code of a callback, once, and checks who it stands for.
    pub(crate) async fn identify(
        &self,
        _permit: ExchangePermit<'_>,
        attempt: &Attempt,
        code: &str,
        now: Timestamp,
    ) -> Result<ProvenIdentity, ProviderError> {
        let metadata = self.metadata(None).await?;
        let (client, pool) = (self.client(&metadata)?, http_pool()?);
        let http = |request| send(pool.clone(), request);
        let request = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|_| Unavailable("it names no token endpoint"))?
            .set_pkce_verifier(PkceCodeVerifier::new(attempt.code_verifier()));
        let tokens = request
            .request_async(&http)
            .await
            .map_err(|error| match error {
                RequestTokenError::ServerResponse(response) => {
                    Rejected(token_error(response.error().as_ref()))
                }
                RequestTokenError::Request(_) => Unavailable("its token endpoint does not respond"),
                _ => Unavailable("its token endpoint answers with something else than tokens"),
            })?;
        let token = tokens.id_token().ok_or(Rejected("no ID token"))?;
        let nonce = Nonce::new(attempt.nonce());
        let claims = match verify(&client, token, &nonce, now) {
            Err(ClaimsVerificationError::SignatureVerification(
                SignatureVerificationError::NoMatchingKey,
            )) => {
                let renewed = self.metadata(Some(&metadata)).await?;
                verify(&self.client(&renewed)?, token, &nonce, now)
            }
            checked => checked,
        };
        let claims = claims.map_err(|error| Rejected(claims_error(&error)))?;
        let subject = claims.subject().as_str();
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return Err(Rejected("its subject is empty or too long"));
        }
        let (email, is_verified) = match claims.email() {
            Some(email) => (Some(email.clone()), claims.email_verified()),
            None => {
                let info = user_info(&client, &claims, tokens.access_token(), &pool).await?;
                (info.email().cloned(), info.email_verified())
            }
        };
        match email {
            Some(email) if is_verified == Some(true) => Ok(ProvenIdentity {
                subject: subject.to_owned(),
                email: email.to_string(),
            }),
            _ => Err(ProviderError::EmailNotVerified),
        }
    }

    fn client(&self, metadata: &CoreProviderMetadata) -> Result<Client, ProviderError> {
        let OidcSettings {
            client_id,
            client_secret,
            ..
        } = &self.settings;
        let (id, secret) = (
            ClientId::new(client_id.clone()),
            ClientSecret::new(client_secret.expose_secret().to_owned()),
        );
        let redirect_uri = RedirectUrl::new(self.redirect_uri.clone());
        let redirect_uri = redirect_uri.map_err(|_| Unavailable("console.public_url is no URL"))?;
        // What a provider takes that does not say.
        let basic = CoreClientAuthMethod::ClientSecretBasic;
        let methods = metadata.token_endpoint_auth_methods_supported();
        let auth_type = match methods.is_none_or(|methods| methods.contains(&basic)) {
            true => AuthType::BasicAuth,
            false => AuthType::RequestBody,
        };
        let client = CoreClient::from_provider_metadata(metadata.clone(), id, Some(secret));
        Ok(client
            .set_redirect_uri(redirect_uri)
            .set_auth_type(auth_type))
    }

    /// The provider's metadata with its keys, which are at most an hour old, and others than
    /// `outdated`. Equal requests wait for one answer.
    async fn metadata(
        &self,
        outdated: Option<&Arc<CoreProviderMetadata>>,
    ) -> Result<Arc<CoreProviderMetadata>, ProviderError> {
        let mut known = self.known.lock().await;
        if let Some((metadata, at)) = &known.metadata
            && at.elapsed() < METADATA_MAX_AGE
            && outdated.is_none_or(|outdated| !Arc::ptr_eq(outdated, metadata))
        {
            return Ok(Arc::clone(metadata));
        }
        if let Some((error, at)) = known.failed
            && at.elapsed() < RETRY_INTERVAL
        {
            return Err(error);
        }
        let found = self.discover().await.map(Arc::new);
        match &found {
            Ok(metadata) => {
                *known = Known {
                    metadata: Some((Arc::clone(metadata), Instant::now())),
                    failed: None,
                }
            }
            Err(error) => known.failed = Some((*error, Instant::now())),
        }
        found
    }

    async fn discover(&self) -> Result<CoreProviderMetadata, ProviderError> {
        let issuer = IssuerUrl::new(self.settings.issuer.clone())
            .map_err(|_| Unavailable("oidc.issuer is no URL"))?;
        let pool = http_pool()?;
        let http = |request| send(pool.clone(), request);
        CoreProviderMetadata::discover_async(issuer, &http)
            .await
            .map_err(|error| match error {
                DiscoveryError::Validation(_) => {
                    Unavailable("its metadata names another issuer than oidc.issuer")
                }
                DiscoveryError::Request(_) => Unavailable("it does not respond"),
                DiscoveryError::Response(..) => Unavailable("it has no metadata below oidc.issuer"),
                _ => Unavailable("its metadata or its keys cannot be read"),
            })
    }
}

fn verify(
    client: &Client,
    token: &CoreIdToken,
    nonce: &Nonce,
    now: Timestamp,
) -> Result<CoreIdTokenClaims, ClaimsVerificationError> {
    let now = DateTime::from_timestamp(now.as_second(), 0).unwrap_or(DateTime::UNIX_EPOCH);
    let verifier = client
        .id_token_verifier()
        .set_allowed_algs(ALGORITHMS)
        .set_time_fn(move || now);
    token.claims(&verifier, nonce).cloned()
}

/// Asks for the e-mail address, which not every provider writes into the ID token.
async fn user_info(
    client: &Client,
    claims: &CoreIdTokenClaims,
    token: &AccessToken,
    pool: &Pool,
) -> Result<CoreUserInfoClaims, ProviderError> {
    let http = |request| send(pool.clone(), request);
    let request = client.user_info(token.clone(), Some(claims.subject().clone()));
    let request = request
        .map_err(|_| Rejected("the ID token has no e-mail address, and there is no user info"))?;
    request
        .request_async(&http)
        .await
        .map_err(|error| match error {
            UserInfoError::ClaimsVerification(_) => {
                Rejected("its user info is about another subject")
            }
            UserInfoError::Request(_) => Unavailable("its user info endpoint does not respond"),
            _ => Unavailable("its user info cannot be read"),
        })
}

fn http_pool() -> Result<Pool, ProviderError> {
    let tls = tls_config("the identity provider")
        .map_err(|_| Unavailable("no TLS here: see `bellbird doctor`"))?;
    Ok(Pool::new(tls, GaiResolver::new(), LIMITS))
}

/// Sends a request to a URL that the provider names, and reads all of the response. Follows no
/// redirect.
async fn send(pool: Pool, request: HttpRequest) -> io::Result<HttpResponse> {
    if provider_url(&request.uri().to_string()).is_none() {
        return Err(io::Error::other("no https URL"));
    }
    let exchange = async {
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let (head, body) = pool
            .send(request)
            .await
            .map_err(|_| io::ErrorKind::NotConnected)?
            .into_parts();
        let body = pool::read(body, BODY_BYTES_MAX)
            .await
            .map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(HttpResponse::from_parts(head, body.into()))
    };
    timeout(CALL_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The codes of RFC 6749, which tell the operator what to correct.
fn token_error(code: &str) -> &'static str {
    match code {
        "invalid_client" => "invalid_client: oidc.client_id or oidc.client_secret is wrong",
        "invalid_grant" => "invalid_grant: the code is unknown, expired or used",
        "unauthorized_client" => "unauthorized_client: the client may not use the code flow",
        "invalid_request" => "invalid_request",
        _ => "its token endpoint rejects the code",
    }
}

fn claims_error(error: &ClaimsVerificationError) -> &'static str {
    use ClaimsVerificationError::{
        Expired, InvalidAudience, InvalidIssuer, InvalidNonce, SignatureVerification,
    };
    match error {
        Expired(_) => "the ID token has expired",
        InvalidAudience(_) => "the ID token is for another client",
        InvalidIssuer(_) => "the ID token is from another issuer",
        InvalidNonce(_) => "the ID token is from another sign-in",
        SignatureVerification(_) => "the ID token is not signed by a key of the provider",
        _ => "the ID token is not valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_exchanges_one_code_at_a_time() {
        let settings = OidcSettings {
            issuer: "https://login.example".to_owned(),
            client_id: "bellbird".to_owned(),
            client_secret: "secret".to_owned().into(),
            create_users: None,
            operators_only_here: false,
        };
        let provider = IdentityProvider::new(&settings, "https://console.example");
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().ok());
        let permit = provider.admit(one).expect("the first");
        assert!(provider.admit(one).is_none());
        assert!(provider.admit(other).is_some());
        drop(permit);
        assert!(provider.admit(one).is_some());
    }
}
