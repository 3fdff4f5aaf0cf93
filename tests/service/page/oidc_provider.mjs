// A real identity provider (npm: oidc-provider) for one client: whoever signs in as NAME@DOMAIN has that address,
// which is verified unless NAME begins with "unverified". It says its address on standard output.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [folder, redirect, secret] = process.argv.slice(2);
const found = createRequire(pathToFileURL(folder + "/")).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(found));
console.error = console.warn = console.info = () => {};
const server = createServer((request, response) => handler(request, response));
let handler;
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "runwarden", client_secret: secret, redirect_uris: [redirect] }],
    claims: { openid: ["sub"], email: ["email", "email_verified"] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: id, email_verified: !id.startsWith("unverified") }),
    }),
    pkce: { required: () => true },
  });
  handler = provider.callback();
  console.log(issuer);
});
