<?php
// Fanfare.php: the backend's half of Fanfare: publish, read, disconnect, revoke, sign tokens.
//
// Copy this file. It needs PHP 8.1 and no package. It repeats what may be repeated, as
// docs/server-sdk.md describes.

declare(strict_types=1);

/** `errorCode` is one of docs/http-api.md#errors; `retryable`: certainly not carried out. */
final class FanfareError extends RuntimeException
{
    public readonly bool $retryable;

    public function __construct(
        public readonly string $errorCode,
        string $message,
        public readonly int $status = 0,
        public readonly ?string $field = null,
        public readonly ?array $position = null,
        public readonly float $retryAfter = 0.0,
    ) {
        parent::__construct("$errorCode: $message");
        $this->retryable = in_array($status, [408, 429, 503], true) && $errorCode !== 'OUTCOME_UNKNOWN';
    }
}

final class Fanfare
{
    private const ATTEMPT_S = 10.0;
    /** The server remembers idempotency keys for five minutes. */
    private const MAX_TIMEOUT_S = 240.0;
    private const RIGHTS = ['join', 'publish', 'presence', 'history'];

    public function __construct(
        private readonly string $url,
        private readonly string $apiKey,
        private readonly float $timeoutS = 30.0,
    ) {
        if (!preg_match('~^https?://~', $url) || $apiKey === '') {
            throw new InvalidArgumentException('url begins with https://, and apiKey is a secret of API_KEYS');
        }
    }

    /**
     * Publishes once, however often it is repeated. Returns epoch and offset in rooms with history.
     * `more`: key, except, expect.
     */
    public function publish(string $room, mixed $payload, array $more = [], ?string $idempotencyKey = null): array
    {
        $body = ['room' => $room, 'payload' => $payload] + $more;
        return $this->call('POST', 'publish', $body, $idempotencyKey ?? self::newKey());
    }

    /** Publishes up to 1,000 messages: room, payload and perhaps key, except, expect, idempotencyKey. */
    public function publishMany(array $messages): array
    {
        $keyed = array_map(fn (array $one) => ['idempotencyKey' => $one['idempotencyKey'] ?? self::newKey()] + $one, $messages);
        $results = $this->call('POST', 'publish/batch', ['messages' => $keyed])['results'];
        foreach ($results as $result) {
            if (isset($result['error'])) {
                throw new FanfareError($result['error'], $result['message'], 0, null, $result['position'] ?? null);
            }
        }
        return $results;
    }

    /** Messages of a room. `query`: limit, since, before. The last two are arrays of epoch and offset. */
    public function history(string $room, array $query = []): array
    {
        foreach (['since', 'before'] as $name) {
            if (isset($query[$name])) {
                $query[$name] = "{$query[$name]['epoch']}:{$query[$name]['offset']}";
            }
        }
        return $this->call('GET', self::path($room, 'history', $query));
    }

    /** Users of a room. `query`: limit, after. */
    public function presence(string $room, array $query = []): array
    {
        return $this->call('GET', self::path($room, 'presence', $query));
    }

    /** Closes connections: `['user' => 'ann']`, or connectionId; perhaps code. Returns how many. */
    public function disconnect(array $whom): int
    {
        return $this->call('POST', 'disconnect', $whom)['connections'];
    }

    /** Revokes tokens: `['user' => 'ann']`, perhaps with issuedBefore; or tokenId. */
    public function revoke(array $whom): array
    {
        return $this->call('POST', 'revoke', $whom);
    }

    /** A token. `rooms`: `['join' => ['chat.*'], 'publish' => ['chat.7']]`. `secret`: JWT_SECRET. */
    public static function sign(string|int $user, array $rooms, string $secret, int $expiresInS = 3600, array $claims = []): string
    {
        $line = current(array_filter(array_map('trim', explode("\n", $secret))));
        if ($line === false || strlen($line) < 32) {
            throw new InvalidArgumentException('secret: at least 32 bytes');
        }
        if (array_diff(array_keys($rooms), self::RIGHTS) !== []) {
            throw new InvalidArgumentException('rooms: the rights are ' . implode(', ', self::RIGHTS));
        }
        if ((string) $user === '' || strlen((string) $user) > 128) {
            throw new InvalidArgumentException('user: 1 to 128 characters');
        }
        $now = time();
        $claims += ['sub' => (string) $user, 'rooms' => (object) $rooms, 'iat' => $now, 'exp' => $now + $expiresInS];
        $signed = self::base64url(self::json(['alg' => 'HS256', 'typ' => 'JWT'])) . '.' . self::base64url(self::json($claims));
        return "$signed." . self::base64url(hash_hmac('sha256', $signed, $line, true));
    }

    private function call(string $method, string $path, ?array $body = null, ?string $key = null): array
    {
        $end = microtime(true) + min($this->timeoutS, self::MAX_TIMEOUT_S);
        $unknown = null;
        for ($attempt = 0; ; $attempt++) {
            try {
                return $this->send($method, $path, $body, $key, $end - microtime(true));
            } catch (FanfareError $error) {
                $isUnknown = $error->errorCode === 'OUTCOME_UNKNOWN';
                if (!$isUnknown && !$error->retryable) {
                    // The server looks for the key first, so a conflict is certain.
                    throw str_ends_with($error->errorCode, 'CONFLICT') ? $error : $unknown ?? $error;
                }
                $unknown ??= $isUnknown ? $error : null;
                $wait = $error->retryAfter + lcg_value() * min(5, 0.2 * 2 ** $attempt);
                if (microtime(true) + $wait >= $end) {
                    // The refusal of a later attempt does not say that nothing has happened.
                    throw $unknown ?? $error;
                }
                usleep((int) ($wait * 1e6));
            }
        }
    }

    private function send(string $method, string $path, ?array $body, ?string $key, float $restS): array
    {
        $headers = ["Authorization: Bearer {$this->apiKey}"];
        if ($body !== null) {
            $headers[] = 'Content-Type: application/json';
        }
        if ($key !== null) {
            $headers[] = "Idempotency-Key: $key";
        }
        $context = stream_context_create(['http' => [
            'method' => $method,
            'header' => $headers,
            'content' => $body === null ? '' : self::json($body),
            'timeout' => max(0.001, min(self::ATTEMPT_S, $restS)),
            'ignore_errors' => true,
            'follow_location' => 0,
        ]]);
        $stream = @fopen(rtrim($this->url, '/') . "/api/$path", 'r', false, $context);
        $text = $stream === false ? false : stream_get_contents($stream);
        if ($text === false || stream_get_meta_data($stream)['timed_out']) {
            throw new FanfareError('OUTCOME_UNKNOWN', 'No answer: ' . (error_get_last()['message'] ?? 'time-out'));
        }
        $lines = stream_get_meta_data($stream)['wrapper_data'];
        $fields = [];
        foreach (array_slice($lines, 1) as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $fields[strtolower($name)] = trim($value);
        }
        $status = (int) explode(' ', $lines[0])[1];
        $answer = json_decode($text, true);
        if ($status < 300 && is_array($answer)) {
            return $answer;
        }
        $retryAfter = (float) ($fields['retry-after'] ?? 0);
        // Fanfare names the error in a header, too; a proxy that answers in its place does not.
        if (isset($fields['fanfare-error'], $answer['error'])) {
            throw new FanfareError($answer['error'], $answer['message'], $status, $answer['field'] ?? null, $answer['position'] ?? null, $retryAfter);
        }
        $code = $status === 429 ? 'RATE_LIMIT_EXCEEDED' : ($status >= 500 ? 'OUTCOME_UNKNOWN' : 'UNEXPECTED_ANSWER');
        throw new FanfareError($code, "HTTP $status is no answer of Fanfare", $status, null, null, $retryAfter);
    }

    private static function path(string $room, string $what, array $query): string
    {
        $path = 'rooms/' . rawurlencode($room) . "/$what";
        return $query === [] ? $path : "$path?" . http_build_query($query);
    }

    private static function newKey(): string
    {
        return bin2hex(random_bytes(16));
    }

    private static function json(mixed $value): string
    {
        return json_encode($value, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION);
    }

    private static function base64url(string $bytes): string
    {
        return rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
    }
}
