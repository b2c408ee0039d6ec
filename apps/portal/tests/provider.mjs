// A provider of identities for tests: the certified `oidc-provider` of npm, whose accounts have any name.
//
//     node provider.mjs LIBRARY PORT REDIRECT_URI KEY_NUMBER
//
// LIBRARY is the folder of the installed package. With another KEY_NUMBER it signs with another key.
import { generateKeyPairSync } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [library, port, redirect, number] = process.argv.slice(2);
const { Provider } = await import(join(library, "lib", "index.js"));

const file = `key-${number}.json`;
if (!existsSync(file)) {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  writeFileSync(file, JSON.stringify({ ...privateKey.export({ format: "jwk" }), kid: `key-${number}`, use: "sig", alg: "RS256" }));
}
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "portal",
      client_secret: "a secret of the portal and the provider alone",
      redirect_uris: [redirect],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
  ],
  cookies: { keys: ["a key of cookies"] },
  conformIdTokenClaims: false,
  claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email", "email_verified"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: `subject-of-${id}`, preferred_username: id, email: `${id}@sky.example`, email_verified: true }),
  }),
  features: { devInteractions: { enabled: true } },
  jwks: { keys: [JSON.parse(readFileSync(file, "utf8"))] },
  pkce: { required: () => true },
  ttl: { Session: 3600, Grant: 3600, Interaction: 3600, AccessToken: 3600, IdToken: 3600 },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
