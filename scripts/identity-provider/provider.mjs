// An identity provider for tests: oidc-provider as it comes, which signs everybody in as the account that the test has
// chosen. Takes the folder of its packages, prints its issuer, and ends with its standard input.
//
//   PUT /__control  {redirectUri, account, alg, claimsInIdToken, tamper, rotate, declines}, each of them optional
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(pathToFileURL(`${process.argv[2]}/`))
const load = name => import(pathToFileURL(require.resolve(name)))
const { Provider } = await load('oidc-provider')
const { CompactSign, exportJWK, generateKeyPair } = await load('jose')

const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'EdDSA']
const SECRET = 'a secret of the test: 100%'
const state = { redirectUri: 'https://unset.example/', account: { sub: 'nobody' }, alg: 'RS256' }
let keys = await newKeys()
let otherKeys
let handle

const server = createServer(async (request, response) => {
  if (request.url !== '/__control') return handle(request, response)
  const body = JSON.parse((await request.setEncoding('utf8').toArray()).join(''))
  Object.assign(state, { tamper: null, declines: false }, body)
  if (body.rotate) keys = await newKeys()
  // Now, because they can take seconds, and the service waits for a token for some seconds only.
  if (body.tamper?.isForged) otherKeys = await newKeys()
  handle = newProvider()
  response.end()
})
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
// Not the host of the console, so that the browser comes from another site.
const issuer = `http://localhost:${server.address().port}`
handle = newProvider()
console.log(issuer)
process.stdin.on('end', () => process.exit()).resume()

function newKeys() {
  return Promise.all(ALGORITHMS.map(async alg => {
    const { privateKey } = await generateKeyPair(alg, { extractable: true })
    return { ...await exportJWK(privateKey), alg, use: 'sig', kid: crypto.randomUUID() }
  }))
}

function newProvider() {
  const provider = new Provider(issuer, {
    claims: { openid: ['sub'], email: ['email', 'email_verified'] },
    clients: [{
      client_id: 'bellbird',
      client_secret: SECRET,
      redirect_uris: [state.redirectUri],
      id_token_signed_response_alg: state.alg,
    }],
    // Which leaves the e-mail address to the user info endpoint, as the specification says.
    conformIdTokenClaims: !state.claimsInIdToken,
    cookies: { keys: [SECRET] },
    enabledJWA: { idTokenSigningAlgValues: ALGORITHMS },
    features: { devInteractions: { enabled: false } },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ ...state.account, sub }) }),
    interactions: { url: () => '/interaction' },
    jwks: { keys },
    pkce: { required: () => true },
    ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
  })
  provider.use(async (context, next) => {
    await next()
    if (state.tamper && context.body?.id_token) context.body.id_token = await tampered(context.body.id_token)
  })
  const callback = provider.callback()
  return (request, response) => request.url === '/interaction' ? interact(provider, request, response)
    : callback(request, response)
}

async function interact(provider, request, response) {
  const { prompt, params, session } = await provider.interactionDetails(request, response)
  let result
  if (state.declines) {
    result = { error: 'access_denied' }
  } else if (prompt.name === 'login') {
    result = { login: { accountId: state.account.sub } }
  } else {
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id })
    grant.addOIDCScope('openid email')
    result = { consent: { grantId: await grant.save() } }
  }
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true })
}

// The ID token as an attacker, or a broken provider, would send it.
async function tampered(token) {
  const { claims, alg = state.alg, isForged } = state.tamper
  const [head, body] = token.split('.', 2).map(part => JSON.parse(Buffer.from(part, 'base64url')))
  const text = Buffer.from(JSON.stringify({ ...body, ...claims }))
  if (alg === 'none') {
    return `${Buffer.from('{"alg":"none"}').toString('base64url')}.${text.toString('base64url')}.`
  }
  const key = alg === 'HS256' ? Buffer.from(SECRET) : (isForged ? otherKeys : keys).find(key => key.alg === alg)
  return new CompactSign(text).setProtectedHeader({ ...head, alg }).sign(key)
}
